package wire

// SandboxResponse is the response to create, fork and get. Resumed reports
// whether the call started a session.
type SandboxResponse struct {
	Sandbox Sandbox `json:"sandbox"`
	Session Session `json:"session"`
	Routes  []Route `json:"routes"`
	Resumed bool    `json:"resumed,omitempty"`
}

// Names returns the names of the sandbox and the session in the response.
func (r *SandboxResponse) Names() (sandbox, session string) { return r.Sandbox.Name, r.Session.ID }

// UpdateResponse is the response to update and delete. Routes is nil if omitted.
type UpdateResponse struct {
	Sandbox Sandbox `json:"sandbox"`
	Routes  []Route `json:"routes,omitzero"`
}

// SandboxesPage is a page of sandboxes.
type SandboxesPage struct {
	Sandboxes  []Sandbox  `json:"sandboxes"`
	Pagination Pagination `json:"pagination"`
}

// SessionResponse is the response to session operations. Only get session sends
// routes.
type SessionResponse struct {
	Session Session `json:"session"`
	Routes  []Route `json:"routes,omitzero"`
}

// Names returns the names of the sandbox and the session in the response.
func (r *SessionResponse) Names() (sandbox, session string) {
	return r.Session.SourceSandboxName, r.Session.ID
}

// SessionsPage is a page of sessions.
type SessionsPage struct {
	Sessions   []Session  `json:"sessions"`
	Pagination Pagination `json:"pagination"`
}

// StopResponse is the response to stop.
type StopResponse struct {
	Session  Session   `json:"session"`
	Sandbox  *Sandbox  `json:"sandbox,omitempty"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
}

// SnapshotResponse is the response to get and delete snapshot, and with Session
// to create snapshot.
type SnapshotResponse struct {
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

// CommandResponse is the response to command operations, and the first and last
// record of a waited command's stream.
type CommandResponse struct {
	Command Command `json:"command"`
}

// CommandsResponse is the response to list commands.
type CommandsResponse struct {
	Commands []Command `json:"commands"`
}

// StdinResponse is the response to a write to a command's standard input.
// BytesWritten is how much the command has received in total; nil if the
// sandbox does not count.
type StdinResponse struct {
	Command      Command `json:"command"`
	BytesWritten *int64  `json:"bytesWritten,omitempty"`
}

// DriveResponse is the response to drive operations.
type DriveResponse struct {
	Drive Drive `json:"drive"`
}

// DrivesPage is a page of drives.
type DrivesPage struct {
	Drives     []Drive    `json:"drives"`
	Pagination Pagination `json:"pagination"`
}

// InteractiveResponse is the address of a terminal service.
type InteractiveResponse struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// ErrorResponse is the body of a response that is not 2xx.
type ErrorResponse struct {
	Error RecordError `json:"error"`
}
