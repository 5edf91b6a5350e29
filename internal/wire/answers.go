package wire

// SandboxAnswer is the response to create, fork and get. Resumed reports
// whether the call started a session.
type SandboxAnswer struct {
	Sandbox Sandbox `json:"sandbox"`
	Session Session `json:"session"`
	Routes  []Route `json:"routes"`
	Resumed bool    `json:"resumed,omitempty"`
}

// UpdateAnswer is the response to update and delete. Routes is nil if omitted.
type UpdateAnswer struct {
	Sandbox Sandbox `json:"sandbox"`
	Routes  []Route `json:"routes,omitzero"`
}

// SandboxesPage is a page of sandboxes.
type SandboxesPage struct {
	Sandboxes  []Sandbox  `json:"sandboxes"`
	Pagination Pagination `json:"pagination"`
}

// SessionAnswer is the response to session operations. Only get session sends
// routes.
type SessionAnswer struct {
	Session Session `json:"session"`
	Routes  []Route `json:"routes,omitzero"`
}

// SessionsPage is a page of sessions.
type SessionsPage struct {
	Sessions   []Session  `json:"sessions"`
	Pagination Pagination `json:"pagination"`
}

// StopAnswer is the response to stop.
type StopAnswer struct {
	Session  Session   `json:"session"`
	Sandbox  *Sandbox  `json:"sandbox,omitempty"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
}

// SnapshotAnswer is the response to get and delete snapshot, and with Session
// to create snapshot.
type SnapshotAnswer struct {
	Snapshot Snapshot `json:"snapshot"`
	Session  *Session `json:"session,omitempty"`
}

// SnapshotsPage is a page of snapshots.
type SnapshotsPage struct {
	Snapshots  []Snapshot `json:"snapshots"`
	Pagination Pagination `json:"pagination"`
}

// SnapshotTreePage is a page of a snapshot's ancestors or descendants.
type SnapshotTreePage struct {
	Snapshots  []SnapshotTreeNode `json:"snapshots"`
	Anchor     *SnapshotTreeNode  `json:"anchor,omitempty"`
	Pagination Pagination         `json:"pagination"`
}

// CommandAnswer is the response to command operations, and the first and last
// record of a waited command's stream.
type CommandAnswer struct {
	Command Command `json:"command"`
}

// CommandsAnswer is the response to list commands.
type CommandsAnswer struct {
	Commands []Command `json:"commands"`
}

// StdinAnswer is the response to a write to a command's standard input.
// BytesWritten is how much the command has received in total; nil if the
// sandbox does not count.
type StdinAnswer struct {
	Command      Command `json:"command"`
	BytesWritten *int64  `json:"bytesWritten,omitempty"`
}

// DriveAnswer is the response to drive operations.
type DriveAnswer struct {
	Drive Drive `json:"drive"`
}

// DrivesPage is a page of drives.
type DrivesPage struct {
	Drives     []Drive    `json:"drives"`
	Pagination Pagination `json:"pagination"`
}

// InteractiveAnswer is the address of a terminal service.
type InteractiveAnswer struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// ErrorAnswer is the body of a response that is not 2xx.
type ErrorAnswer struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}
