package sandboxtest

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// Operation names an operation of the API, for [Fault] and [Request].
type Operation string

// The operations of the API.
const (
	CreateSandbox   Operation = "create sandbox"
	ForkSandbox     Operation = "fork sandbox"
	GetSandbox      Operation = "get sandbox"
	ListSandboxes   Operation = "list sandboxes"
	UpdateSandbox   Operation = "update sandbox"
	DeleteSandbox   Operation = "delete sandbox"
	GetSession      Operation = "get session"
	ListSessions    Operation = "list sessions"
	StopSession     Operation = "stop session"
	ExtendTimeout   Operation = "extend timeout"
	SetPolicy       Operation = "update network policy"
	CreateSnapshot  Operation = "create snapshot"
	OpenInteractive Operation = "open interactive session"
	// RunCommand is both forms of starting a command, waited and detached.
	RunCommand     Operation = "run command"
	ListCommands   Operation = "list commands"
	GetCommand     Operation = "get command"
	CommandLogs    Operation = "read command logs"
	KillCommand    Operation = "kill command"
	WriteStdin     Operation = "write command input"
	MakeDir        Operation = "make directory"
	WriteFiles     Operation = "write files"
	ReadFile       Operation = "read file"
	ListSnapshots  Operation = "list snapshots"
	SnapshotTree   Operation = "read snapshot tree"
	GetSnapshot    Operation = "get snapshot"
	DeleteSnapshot Operation = "delete snapshot"

	ListDrives       Operation = "list drives"
	GetOrCreateDrive Operation = "get or create drive"
	GetDrive         Operation = "get drive"
	ForkDrive        Operation = "fork drive"
	DeleteDrive      Operation = "delete drive"
	// GetFeatures returns what a project may use.
	GetFeatures Operation = "get features"
)

// endpoint describes the requests of an operation. The table sets every field.
type endpoint struct {
	op     Operation
	method string
	// path is below /v2/sandboxes. "*" matches any one segment.
	path   string
	handle func(*call) error
	// newest is the newest version of the API that has it, at least 2.
	newest int
	effect effect
	quota  quota
}

// effect says whether the effect of an operation survives a crash of the server.
type effect int

const (
	// saved means that the effect is on the disk before the response.
	saved effect = iota
	// unsaved operations only read, or change a running session, which a crash ends.
	unsaved
)

// endpoints is in order: the first match counts, so fixed names come before the names of
// sandboxes.
var endpoints = []endpoint{
	{ListSandboxes, "GET", "", (*call).listSandboxes, 2, unsaved, generalQuota},
	{CreateSandbox, "POST", "", (*call).createSandbox, 4, saved, createQuota},

	{ListSessions, "GET", "/sessions", (*call).listSessions, 2, unsaved, generalQuota},
	{GetSession, "GET", "/sessions/*", (*call).getSession, 2, unsaved, generalQuota},
	{StopSession, "POST", "/sessions/*/stop", (*call).stopSession, 2, saved, generalQuota},
	{ExtendTimeout, "POST", "/sessions/*/extend-timeout", (*call).extendTimeout, 2, saved, generalQuota},
	{SetPolicy, "POST", "/sessions/*/network-policy", (*call).setPolicy, 2, saved, generalQuota},
	{CreateSnapshot, "POST", "/sessions/*/snapshot", (*call).createSnapshot, 3, saved, generalQuota},
	{OpenInteractive, "POST", "/sessions/*/interactive", (*call).openInteractive, 2, unsaved, generalQuota},
	{RunCommand, "POST", "/sessions/*/cmd", (*call).runCommand, 2, unsaved, generalQuota},
	{ListCommands, "GET", "/sessions/*/cmd", (*call).listCommands, 2, unsaved, generalQuota},
	{GetCommand, "GET", "/sessions/*/cmd/*", (*call).getCommand, 2, unsaved, generalQuota},
	{CommandLogs, "GET", "/sessions/*/cmd/*/logs", (*call).commandLogs, 2, unsaved, generalQuota},
	{KillCommand, "POST", "/sessions/*/cmd/*/kill", (*call).killCommand, 2, unsaved, generalQuota},
	{WriteStdin, "POST", "/sessions/*/cmd/*/stdin", (*call).writeStdin, 2, unsaved, generalQuota},
	{MakeDir, "POST", "/sessions/*/fs/mkdir", (*call).makeDir, 2, unsaved, generalQuota},
	{WriteFiles, "POST", "/sessions/*/fs/write", (*call).writeFiles, 2, unsaved, generalQuota},
	{ReadFile, "POST", "/sessions/*/fs/read", (*call).readFile, 2, unsaved, generalQuota},

	{ListSnapshots, "GET", "/snapshots", (*call).listSnapshots, 2, unsaved, generalQuota},
	{SnapshotTree, "GET", "/snapshots/tree", (*call).snapshotTree, 2, unsaved, generalQuota},
	{GetSnapshot, "GET", "/snapshots/*", (*call).getSnapshot, 2, unsaved, generalQuota},
	{DeleteSnapshot, "DELETE", "/snapshots/*", (*call).deleteSnapshot, 2, saved, deleteQuota},

	{ListDrives, "GET", "/drives", (*call).listDrives, 2, unsaved, generalQuota},
	{GetDrive, "GET", "/drives/*", (*call).getDrive, 2, unsaved, generalQuota},
	{GetOrCreateDrive, "POST", "/drives/*", (*call).getOrCreateDrive, 2, saved, generalQuota},
	{ForkDrive, "POST", "/drives/*/fork", (*call).forkDrive, 2, saved, generalQuota},
	{DeleteDrive, "DELETE", "/drives/*", (*call).deleteDrive, 2, saved, deleteQuota},
	{GetFeatures, "GET", "/features", (*call).getFeatures, 2, unsaved, generalQuota},

	{GetSandbox, "GET", "/*", (*call).getSandbox, 2, saved, generalQuota},
	{UpdateSandbox, "PATCH", "/*", (*call).updateSandbox, 2, saved, generalQuota},
	{DeleteSandbox, "DELETE", "/*", (*call).deleteSandbox, 2, saved, deleteQuota},
	{ForkSandbox, "POST", "/*/fork", (*call).forkSandbox, 3, saved, generalQuota},
}

// lookUp finds the endpoint of a request and the values of its wildcards. If no method
// matches, allowed lists the methods of the path.
func lookUp(method, escapedPath string) (e *endpoint, version int, values []string, allowed []string, err *reply.Error) {
	// The service also offers drives under /v1/drives, with the same operations.
	if rest, ok := strings.CutPrefix(escapedPath, "/v1/drives"); ok && (rest == "" || rest[0] == '/') {
		escapedPath = "/v2/sandboxes/drives" + rest
	}
	version, rest, err := cutVersion(escapedPath)
	if err != nil {
		return nil, version, nil, nil, err
	}
	segments := strings.Split(strings.TrimSuffix(rest, "/"), "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil {
			return nil, version, nil, nil, reply.BadRequest("The path is not well formed.")
		}
		segments[i] = plain
	}
	for i := range endpoints {
		e := &endpoints[i]
		values, ok := match(e.path, segments)
		switch {
		case !ok, version > e.newest:
		case e.method == method:
			return e, version, values, nil, nil
		case version == 2: // in later versions the service has no such path
			allowed = append(allowed, e.method)
		}
	}
	if len(allowed) > 0 {
		return nil, version, nil, allowed, reply.Fail(http.StatusMethodNotAllowed, "method_not_allowed", "The method %.20q is not allowed here.", method)
	}
	return nil, version, nil, nil, reply.NotFound("Not Found")
}

// cutVersion splits a path /v<version>/sandboxes<rest>.
func cutVersion(escapedPath string) (version int, rest string, err *reply.Error) {
	number, rest, ok := strings.Cut(strings.TrimPrefix(escapedPath, "/v"), "/sandboxes")
	version, aerr := strconv.Atoi(number)
	switch {
	case !ok || aerr != nil || rest != "" && rest[0] != '/':
		return 0, "", reply.NotFound("Not Found")
	case version == 1:
		return version, "", reply.ErrNoVersion1
	case version < 2:
		return version, "", reply.NotFound("Not Found")
	}
	return version, rest, nil
}

func match(path string, segments []string) (values []string, ok bool) {
	pattern := strings.Split(path, "/")
	if len(pattern) != len(segments) {
		return nil, false
	}
	for i, p := range pattern {
		switch {
		case p == "*":
			values = append(values, segments[i])
		case p != segments[i]:
			return nil, false
		}
	}
	return values, true
}
