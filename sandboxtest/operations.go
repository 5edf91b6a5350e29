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

// endpoint describes the requests of an operation.
type endpoint struct {
	op     Operation
	method string
	// newest is the newest version of the API that has it, at least 2.
	newest int
	// path is below /v2/sandboxes. "*" matches any one segment.
	path   []string
	handle func(*call) error
}

// endpoints is in order: the first match counts, so fixed names come before the names of
// sandboxes.
var endpoints []endpoint

func init() {
	add := func(op Operation, method, path string, handle func(*call) error) {
		var segments []string
		if path != "" {
			segments = strings.Split(path, "/")
		}
		newest := 2
		switch op {
		case CreateSandbox:
			newest = 4
		case ForkSandbox, CreateSnapshot:
			newest = 3
		}
		endpoints = append(endpoints, endpoint{op, method, newest, segments, handle})
	}
	add(ListSandboxes, http.MethodGet, "", (*call).listSandboxes)
	add(CreateSandbox, http.MethodPost, "", (*call).createSandbox)

	add(ListSessions, http.MethodGet, "sessions", (*call).listSessions)
	add(GetSession, http.MethodGet, "sessions/*", (*call).getSession)
	add(StopSession, http.MethodPost, "sessions/*/stop", (*call).stopSession)
	add(ExtendTimeout, http.MethodPost, "sessions/*/extend-timeout", (*call).extendTimeout)
	add(SetPolicy, http.MethodPost, "sessions/*/network-policy", (*call).setPolicy)
	add(CreateSnapshot, http.MethodPost, "sessions/*/snapshot", (*call).createSnapshot)
	add(OpenInteractive, http.MethodPost, "sessions/*/interactive", (*call).openInteractive)
	add(RunCommand, http.MethodPost, "sessions/*/cmd", (*call).runCommand)
	add(ListCommands, http.MethodGet, "sessions/*/cmd", (*call).listCommands)
	add(GetCommand, http.MethodGet, "sessions/*/cmd/*", (*call).getCommand)
	add(CommandLogs, http.MethodGet, "sessions/*/cmd/*/logs", (*call).commandLogs)
	add(KillCommand, http.MethodPost, "sessions/*/cmd/*/kill", (*call).killCommand)
	add(WriteStdin, http.MethodPost, "sessions/*/cmd/*/stdin", (*call).writeStdin)
	add(MakeDir, http.MethodPost, "sessions/*/fs/mkdir", (*call).makeDir)
	add(WriteFiles, http.MethodPost, "sessions/*/fs/write", (*call).writeFiles)
	add(ReadFile, http.MethodPost, "sessions/*/fs/read", (*call).readFile)

	add(ListSnapshots, http.MethodGet, "snapshots", (*call).listSnapshots)
	add(SnapshotTree, http.MethodGet, "snapshots/tree", (*call).snapshotTree)
	add(GetSnapshot, http.MethodGet, "snapshots/*", (*call).getSnapshot)
	add(DeleteSnapshot, http.MethodDelete, "snapshots/*", (*call).deleteSnapshot)

	add(ListDrives, http.MethodGet, "drives", (*call).listDrives)
	add(GetDrive, http.MethodGet, "drives/*", (*call).getDrive)
	add(GetOrCreateDrive, http.MethodPost, "drives/*", (*call).getOrCreateDrive)
	add(ForkDrive, http.MethodPost, "drives/*/fork", (*call).forkDrive)
	add(DeleteDrive, http.MethodDelete, "drives/*", (*call).deleteDrive)
	add(GetFeatures, http.MethodGet, "features", (*call).getFeatures)

	add(GetSandbox, http.MethodGet, "*", (*call).getSandbox)
	add(UpdateSandbox, http.MethodPatch, "*", (*call).updateSandbox)
	add(DeleteSandbox, http.MethodDelete, "*", (*call).deleteSandbox)
	add(ForkSandbox, http.MethodPost, "*/fork", (*call).forkSandbox)
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
	var segments []string
	if rest = strings.TrimSuffix(rest, "/"); rest != "" {
		segments = strings.Split(rest[1:], "/")
	}
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

func match(pattern, segments []string) (values []string, ok bool) {
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

// durable reports whether the effect of an operation is saved before its response, so
// that it survives a crash of the server.
func (op Operation) durable() bool {
	switch op {
	case CreateSandbox, ForkSandbox, GetSandbox, UpdateSandbox, DeleteSandbox, StopSession, ExtendTimeout, SetPolicy, CreateSnapshot, DeleteSnapshot,
		GetOrCreateDrive, ForkDrive, DeleteDrive:
		return true
	}
	return false
}
