package api

import (
	"net/http"
	"slices"
	"strings"
)

// Class determines when an operation may be retried.
type Class int

const (
	// Safe operations have the same result however often they are delivered.
	// They are retried after connection errors, broken responses, 408, 425, 429
	// and 5xx.
	Safe Class = iota
	// Once operations must not take effect twice. They are retried only if the
	// request surely had no effect: it was never written to a connection, or
	// the API responded with 429.
	Once
)

// Op is one operation of the API.
type Op struct {
	Name   string
	Method string
	// Path is a template whose {placeholders} are filled in order.
	Path  string
	Class Class
	// Success describes a successful response of the API, to distinguish it from that of
	// a proxy. It is the media type of a stream, or conditions separated by spaces:
	//
	//	a.b       a string
	//	a.b={x}   a string with the value of placeholder x; {new} is the requested name
	//	a.b?={x}  the same, but it may be missing
	//	a|b       a or b
	//	a[]       a list
	//	a[].b     a field of the list's first element
	//	a{}       an object
	//	{}        the response is an object
	Success string
	// Bare marks operations whose successful response may have no body if its status is
	// not 200.
	Bare bool
	// First marks operations that precede others when requests wait for a rate limit: those
	// that finish running work or keep it running.
	First bool

	// Placeholders are the names of the placeholders in Path.
	Placeholders []string
	terms        []term // of Success
}

// Stream reports whether a successful response is returned unread.
func (op *Op) Stream() bool { return strings.Contains(op.Success, "/") }

// Drive reports whether the operation is on drives. Not every project may use them.
func (op *Op) Drive() bool { return strings.Contains(op.Path, "/drives") }

// Table lists all operations. Only this table decides how an operation is retried and what
// its success looks like.
var Table []*Op

const (
	get, post, patch, remove = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete

	sandboxes = "/v2/sandboxes"
	sandbox   = sandboxes + "/{sandbox}"
	session   = sandboxes + "/sessions/{session}"
	command   = session + "/cmd/{command}"
	snapshots = sandboxes + "/snapshots"
	drives    = sandboxes + "/drives"

	ndjson      = "application/x-ndjson"
	octetStream = "application/octet-stream"

	newSandbox  = "sandbox.name={new} session.id"
	sameSandbox = "sandbox.name={sandbox}"
	sameSession = "session.id={session}"
	sameCommand = "command.id={command}"
	inSession   = ".sessionId?={session}"
	sameDrive   = "drive.name={drive}|drive.id={drive}"
	page        = " pagination{}" // its next may be null but not missing
)

func op(name, method, path string, class Class, success string) *Op {
	o := &Op{Name: name, Method: method, Path: path, Class: class, Success: success, terms: terms(success)}
	for _, rest := range strings.Split(path, "{")[1:] {
		name, _, _ := strings.Cut(rest, "}")
		o.Placeholders = append(o.Placeholders, name)
	}
	Table = append(Table, o)
	return o
}

func emptySuccess(o *Op) *Op {
	o.Bare = true
	return o
}

func highPriority(o *Op) *Op {
	o.First = true
	return o
}

// The operations of the API. The comment of a Once operation says what a second delivery
// does; docs/reliability.md says what a late one does.
var (
	// Creates a second sandbox, which is billed although no caller has its name. If the
	// caller chose a name, the second delivery is refused, because the name is taken. The
	// refusal does not say whether the sandbox is ours, so GetOrCreate looks the name up and
	// sets up only a sandbox with its own tag.
	CreateSandbox = op("create sandbox", post, "/v3/sandboxes", Once, newSandbox)
	// Creates a sandbox with a runtime, which the newer version of the route does not
	// accept. Fork and snapshot use this version too, because later ones keep snapshots
	// for a shorter time.
	CreateRuntime = op("create sandbox", post, sandboxes, Once, newSandbox)
	ForkSandbox   = op("fork sandbox", post, sandbox+"/fork", Once, newSandbox)
	// With resume, a second delivery finds the session that the first one started. The
	// session counts as started by this client, so that its hook runs.
	GetSandbox    = op("get sandbox", get, sandbox, Safe, sameSandbox+" session.id")
	ListSandboxes = op("list sandboxes", get, sandboxes, Safe, "sandboxes[]"+page)
	UpdateSandbox = op("update sandbox", patch, sandbox, Safe, sameSandbox)
	// Deletes the sandbox that has the name by then, which may be somebody else's new
	// one. The client looks the name up first.
	DeleteSandbox = emptySuccess(op("delete sandbox", remove, sandbox, Once, sameSandbox))

	GetSession   = op("get session", get, session, Safe, sameSession)
	ListSessions = op("list sessions", get, sandboxes+"/sessions", Safe, "sessions[]"+page)
	StopSession  = op("stop session", post, session+"/stop", Safe, sameSession)
	// Extends twice, because the request contains an amount, not a point in time.
	ExtendTimeout = highPriority(op("extend timeout", post, session+"/extend-timeout", Once, sameSession))
	SetPolicy     = op("update network policy", post, session+"/network-policy", Safe, sameSession)
	// Creates a second snapshot, or is refused because the first one has ended the session.
	CreateSnapshot = op("create snapshot", post, session+"/snapshot", Once, "snapshot.id snapshot.sourceSessionId?={session}")
	// Returns the same service: nothing runs in it before it is dialed.
	OpenInteractive = op("open interactive session", post, session+"/interactive", Safe, "url")

	// Runs the command a second time. The client looks up a command with an ID.
	RunCommand   = op("run command", post, session+"/cmd", Once, ndjson)
	StartCommand = op("start command", post, session+"/cmd", Once, "command.id command"+inSession)
	ListCommands = op("list commands", get, session+"/cmd", Safe, "commands[] commands[]"+inSession)
	GetCommand   = highPriority(op("get command", get, command, Safe, sameCommand))
	CommandLogs  = highPriority(op("read command logs", get, command+"/logs", Safe, ndjson))
	// KillCommand sends SIGKILL, which can safely be sent twice.
	KillCommand = highPriority(emptySuccess(op("kill command", post, command+"/kill", Safe, sameCommand)))
	// SignalCommand sends any other signal. The client does not repeat it, because many
	// programs exit without saving at a second SIGINT. After a lost response, the client
	// looks the command up: if it has ended, it needs no signal.
	SignalCommand = highPriority(emptySuccess(op("kill command", post, command+"/kill", Once, sameCommand)))
	// WriteStdin contains the offset of its data. A second delivery writes nothing if the
	// sandbox checks offsets, and the same bytes twice otherwise. The client queries the
	// offset until the sandbox has shown that it checks them.
	WriteStdin = op("write command input", post, command+"/stdin", Once, sameCommand)

	// Finds that the directory exists, but not who made it.
	MakeDir    = emptySuccess(op("make directory", post, session+"/fs/mkdir", Once, "{}"))
	WriteFiles = emptySuccess(op("write files", post, session+"/fs/write", Safe, "{}"))
	ReadFile   = op("read file", post, session+"/fs/read", Safe, octetStream)

	ListDrives       = op("list drives", get, drives, Safe, "drives[]"+page)
	GetOrCreateDrive = op("get or create drive", post, drives+"/{drive}", Safe, sameDrive)
	GetDrive         = op("get drive", get, drives+"/{drive}", Safe, sameDrive)
	// Is refused, because the name is taken.
	ForkDrive = op("fork drive", post, drives+"/{drive}/fork", Once, "drive.name={new}")
	// Deletes the drive that has the name by then, with its data. The client looks the
	// name up first.
	DeleteDrive = emptySuccess(op("delete drive", remove, drives+"/{drive}", Once, sameDrive))

	ListSnapshots = op("list snapshots", get, snapshots, Safe, "snapshots[]"+page)
	SnapshotTree  = op("read snapshot tree", get, snapshots+"/tree", Safe, "snapshots[]"+page)
	GetSnapshot   = op("get snapshot", get, snapshots+"/{snapshot}", Safe, "snapshot.id={snapshot}")
	// Finds nothing, because IDs are never reused. After a lost response, "not found"
	// therefore means success.
	DeleteSnapshot = emptySuccess(op("delete snapshot", remove, snapshots+"/{snapshot}", Safe, "snapshot.id={snapshot}"))
)

// expand fills the placeholders in order and returns the path, unescaped and escaped.
func (op *Op) expand(values []string) (plain, escaped string) {
	if len(values) == 0 {
		return op.Path, op.Path
	}
	var p, e strings.Builder
	rest := op.Path
	for _, v := range values {
		before, after, _ := strings.Cut(rest, "{")
		_, rest, _ = strings.Cut(after, "}")
		p.WriteString(before)
		p.WriteString(v)
		e.WriteString(before)
		e.WriteString(escapeSegment(v))
	}
	p.WriteString(rest)
	e.WriteString(rest)
	return p.String(), e.String()
}

// escapeSegment escapes like encodeURIComponent, so that a name is always one segment of
// the path.
func escapeSegment(s string) string {
	const hex = "0123456789ABCDEF"
	plain := func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.!~*'()", c) >= 0
	}
	n := 0
	for i := range len(s) {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// placeholder returns the value of a placeholder of the path.
func (op *Op) placeholder(name string, values []string) string {
	if i := slices.Index(op.Placeholders, name); i >= 0 && i < len(values) {
		return values[i]
	}
	return ""
}
