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
	// Success is what the API's responses have when the operation has succeeded,
	// and what comes from anything in between has not: the media type of a
	// stream, or terms separated by spaces. "a.b" is a string, "a.b={x}" one that
	// is the value of a placeholder, or of {new}, the name that was asked for, and
	// "a.b?={x}" is that if there is one; "a[]" is a list, "a[].b" a field of its
	// first element, "a{}" an object, and "{}" the whole as one.
	Success string
	// Bare marks operations whose success may be without a body, if its status
	// is not 200.
	Bare bool
	// First marks operations that go before others when requests wait for a rate
	// limit: those that end what runs already, or keep it from ending.
	First bool

	// Placeholders are the names of those in Path.
	Placeholders []string
	terms        []term // of Success
}

// Stream reports whether a successful response is passed on unread.
func (op *Op) Stream() bool { return strings.Contains(op.Success, "/") }

// Drive reports whether the operation is on drives, which not every project may
// use.
func (op *Op) Drive() bool { return strings.Contains(op.Path, "/drives") }

// Table lists all operations. It is the only place that decides how an
// operation is retried, and what its success looks like.
var Table []*Op

const (
	get, post, patch, remove = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete

	sandboxes = "/v2/sandboxes"
	sandbox   = sandboxes + "/{sandbox}"
	session   = sandboxes + "/sessions/{session}"
	command   = session + "/cmd/{command}"
	snapshots = sandboxes + "/snapshots"
	drives    = sandboxes + "/drives"

	records = "application/x-ndjson"
	content = "application/octet-stream"

	madeSandbox = "sandbox.name={new} session.id"
	thatSandbox = "sandbox.name={sandbox}"
	thatSession = "session.id={session}"
	thatCommand = "command.id={command}"
	ofSession   = ".sessionId?={session}"
	thatDrive   = "drive.name={drive}|drive.id={drive}"
	page        = " pagination{}" // whose next may be null, but not missing
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

func bare(o *Op) *Op {
	o.Bare = true
	return o
}

func first(o *Op) *Op {
	o.First = true
	return o
}

// The operations of the API. For one of class Once it says what a second
// delivery does; docs/reliability.md says what one does that arrives late.
var (
	// A second sandbox, which costs and which no one knows of. With a name it is
	// refused, since that is taken, which does not tell ours from somebody else's:
	// GetOrCreate looks the name up, and sets up only what carries its own mark.
	CreateSandbox = op("create sandbox", post, "/v3/sandboxes", Once, madeSandbox)
	// Create with a runtime, which the newer version of the route does not
	// accept. Fork and snapshot stay at this version: later ones keep snapshots
	// for a shorter time.
	CreateRuntime = op("create sandbox", post, sandboxes, Once, madeSandbox)
	ForkSandbox   = op("fork sandbox", post, sandbox+"/fork", Once, madeSandbox)
	// With resume, a second get finds the session that the first one started. It
	// counts as started by this client, so that its hook runs.
	GetSandbox    = op("get sandbox", get, sandbox, Safe, thatSandbox+" session.id")
	ListSandboxes = op("list sandboxes", get, sandboxes, Safe, "sandboxes[]"+page)
	UpdateSandbox = op("update sandbox", patch, sandbox, Safe, thatSandbox)
	// Deletes whatever bears the name by then, which may be somebody else's new
	// sandbox. The name is looked up first.
	DeleteSandbox = bare(op("delete sandbox", remove, sandbox, Once, thatSandbox))

	GetSession   = op("get session", get, session, Safe, thatSession)
	ListSessions = op("list sessions", get, sandboxes+"/sessions", Safe, "sessions[]"+page)
	StopSession  = op("stop session", post, session+"/stop", Safe, thatSession)
	// Extends twice: the end is moved by an amount, not to a point in time.
	ExtendTimeout = first(op("extend timeout", post, session+"/extend-timeout", Once, thatSession))
	SetPolicy     = op("update network policy", post, session+"/network-policy", Safe, thatSession)
	// A second snapshot, or refused by the session that the first one ends.
	CreateSnapshot = op("create snapshot", post, session+"/snapshot", Once, "snapshot.id snapshot.sourceSessionId?={session}")
	// Names the same service: nothing runs in it before it is dialled.
	OpenInteractive = op("open interactive session", post, session+"/interactive", Safe, "url")

	// Runs the command a second time. One with an ID is looked up.
	RunCommand   = op("run command", post, session+"/cmd", Once, records)
	StartCommand = op("start command", post, session+"/cmd", Once, "command.id command"+ofSession)
	ListCommands = op("list commands", get, session+"/cmd", Safe, "commands[] commands[]"+ofSession)
	GetCommand   = first(op("get command", get, command, Safe, thatCommand))
	CommandLogs  = first(op("read command logs", get, command+"/logs", Safe, records))
	// KillCommand sends SIGKILL, which can safely be sent twice.
	KillCommand = first(bare(op("kill command", post, command+"/kill", Safe, thatCommand)))
	// SignalCommand sends any other signal. Many programs take a second SIGINT as
	// an order to give up saving. The command is looked at: one that has ended
	// needs no signal.
	SignalCommand = first(bare(op("kill command", post, command+"/kill", Once, thatCommand)))
	// WriteStdin includes the position of its data: a second delivery writes
	// nothing where the sandbox counts, and the same bytes twice where it does
	// not. Before it has shown that it counts, it is asked.
	WriteStdin = op("write command input", post, command+"/stdin", Once, thatCommand)

	// Finds the directory there, and can't tell who made it.
	MakeDir    = bare(op("make directory", post, session+"/fs/mkdir", Once, "{}"))
	WriteFiles = bare(op("write files", post, session+"/fs/write", Safe, "{}"))
	ReadFile   = op("read file", post, session+"/fs/read", Safe, content)

	ListDrives       = op("list drives", get, drives, Safe, "drives[]"+page)
	GetOrCreateDrive = op("get or create drive", post, drives+"/{drive}", Safe, thatDrive)
	GetDrive         = op("get drive", get, drives+"/{drive}", Safe, thatDrive)
	// Refused, since the name is taken.
	ForkDrive = op("fork drive", post, drives+"/{drive}/fork", Once, "drive.name={new}")
	// Deletes whatever bears the name by then, with all that it holds. The name
	// is looked up first.
	DeleteDrive = bare(op("delete drive", remove, drives+"/{drive}", Once, thatDrive))

	ListSnapshots = op("list snapshots", get, snapshots, Safe, "snapshots[]"+page)
	SnapshotTree  = op("read snapshot tree", get, snapshots+"/tree", Safe, "snapshots[]"+page)
	GetSnapshot   = op("get snapshot", get, snapshots+"/{snapshot}", Safe, "snapshot.id={snapshot}")
	// A second delete finds nothing, since an ID is never given twice. That there
	// is none then means done.
	DeleteSnapshot = bare(op("delete snapshot", remove, snapshots+"/{snapshot}", Safe, "snapshot.id={snapshot}"))
)

// expand fills the template's placeholders, in order, and returns the path with
// its values unescaped and escaped.
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

// escapeSegment escapes everything that encodeURIComponent does, so that a name
// is always one segment of the path.
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

// placeholder returns the value of a placeholder of the template.
func (op *Op) placeholder(name string, values []string) string {
	if i := slices.Index(op.Placeholders, name); i >= 0 && i < len(values) {
		return values[i]
	}
	return ""
}
