package api

import (
	"iter"
	"net/http"
	"strings"
)

// Class determines when an operation may be retried.
type Class int

const (
	// Safe operations have the same result however often they are delivered.
	// They are retried after connection errors, 408, 425, 429 and 5xx.
	Safe Class = iota
	// Once operations must not take effect twice. They are retried only if the
	// request surely had no effect: it was never written to a connection, or
	// the response was 429.
	Once
	// Settled operations are sent like Once. If a response is lost, the SDK
	// looks at the object of the operation, as described by the operation's
	// Lost.
	Settled
)

// String returns the name of the class as used in the documentation.
func (c Class) String() string {
	switch c {
	case Safe:
		return "safe"
	case Once:
		return "once"
	case Settled:
		return "settled"
	}
	return "unknown"
}

// Op is one operation of the API. Path is a template whose {placeholders} are
// filled in order.
type Op struct {
	Name   string
	Method string
	Path   string
	Class  Class
	// Stream marks responses that are passed on unread.
	Stream bool
	// Delete marks operations whose response may be empty. If one is Safe, "not
	// found" after an attempt with unknown outcome means that the earlier
	// attempt succeeded.
	Delete bool
	// Drive marks operations on drives, which not every project may use.
	Drive bool
	// Again describes the effect of a second delivery. It justifies the class.
	Again string
	// Lost describes how the outcome is determined if the response was lost.
	Lost string
	// Late describes the effect of a first attempt that arrives when the caller
	// has gone on and done the next thing. It is empty where there is none,
	// because the object has an ID or a name that is given once, or the data a
	// position.
	Late string
}

// Table lists all operations. It is the only place that decides how an
// operation is retried.
var Table []*Op

func register(op Op) *Op {
	Table = append(Table, &op)
	return &op
}

const (
	session  = "/v2/sandboxes/sessions/{session}"
	drive    = "/v2/sandboxes/drives/{drive}"
	reads    = "reads once more"
	askAgain = "sent again"
	unknown  = "ErrOutcomeUnknown"
	madeLate = "makes a sandbox that nobody knows of; the caller was told that it may"
)

func read(name, path string) Op {
	return Op{Name: name, Method: http.MethodGet, Path: path, Class: Safe, Again: reads, Lost: askAgain}
}

func post(name, path string, class Class, again, lost string) Op {
	return Op{Name: name, Method: http.MethodPost, Path: path, Class: class, Again: again, Lost: lost}
}

func (op Op) streamed() Op {
	op.Stream = true
	return op
}

func (op Op) late(effect string) Op {
	op.Late = effect
	return op
}

func (op Op) ofDrives() Op {
	op.Drive = true
	return op
}

func create(path string) Op {
	return post("create sandbox", path, Once, "makes a second sandbox, which costs and which nobody knows of", unknown).late(madeLate)
}

func createNamed(path string) Op {
	return post("create sandbox", path, Settled,
		"is refused, since the name is taken; it would not tell ours from somebody else's",
		"ErrOutcomeUnknown; GetOrCreate looks the name up and sets up only what carries its own mark")
}

// The operations of the API.
var (
	CreateSandbox = register(create("/v3/sandboxes"))
	CreateNamed   = register(createNamed("/v3/sandboxes"))
	// Create with a runtime, which the newer version of the route does not
	// accept. Fork and snapshot stay at this version: later ones keep snapshots
	// for a shorter time.
	CreateRuntime      = register(create("/v2/sandboxes"))
	CreateRuntimeNamed = register(createNamed("/v2/sandboxes"))

	ForkSandbox = register(post("fork sandbox", "/v2/sandboxes/{sandbox}/fork", Once,
		"makes a second sandbox", unknown).late(madeLate))
	ForkNamed = register(post("fork sandbox", "/v2/sandboxes/{sandbox}/fork", Settled,
		"is refused, since the name is taken", "ErrOutcomeUnknown; the caller looks the name up"))
	GetSandbox = register(Op{Name: "get sandbox", Method: http.MethodGet, Path: "/v2/sandboxes/{sandbox}", Class: Safe,
		Again: "reads once more; with resume it finds the session that the first one started",
		Lost:  "sent again; a session that was started meanwhile counts as started by this client, so that its hook runs",
		Late:  "starts a session of a sandbox that was stopped since; its hook runs with the next call of this client that finds it"})
	ListSandboxes = register(read("list sandboxes", "/v2/sandboxes"))
	UpdateSandbox = register(Op{Name: "update sandbox", Method: http.MethodPatch, Path: "/v2/sandboxes/{sandbox}", Class: Safe,
		Again: "sets the same values", Lost: askAgain, Late: "sets the old values again: the API knows no versions"})
	DeleteSandbox = register(Op{Name: "delete sandbox", Method: http.MethodDelete, Path: "/v2/sandboxes/{sandbox}", Class: Settled, Delete: true,
		Again: "deletes whatever bears the name by then, which may be somebody else's new sandbox",
		Lost:  "the name is looked up: none, or one that was made since, means done; the same one is deleted again",
		Late:  "deletes a sandbox that has taken the name since: the API deletes by name alone"})

	GetSession   = register(read("get session", session))
	ListSessions = register(read("list sessions", "/v2/sandboxes/sessions"))
	StopSession  = register(post("stop session", session+"/stop", Safe, "finds this session stopped, which is no error", askAgain))
	// A session's end is moved by an amount, not to a point in time.
	ExtendTimeout = register(post("extend timeout", session+"/extend-timeout", Once, "extends twice", unknown).
			late("extends; the caller was told that it may"))
	SetPolicy = register(post("update network policy", session+"/network-policy", Safe, "sets the same policy", askAgain).
			late("sets the old policy again: the API knows no versions"))
	CreateSnapshot = register(post("create snapshot", session+"/snapshot", Once,
		"makes a second snapshot, or is refused by the session that the first one ends", unknown).
		late("makes the snapshot and ends the session; the caller was told that it may"))
	OpenInteractive = register(post("open interactive session", session+"/interactive", Safe,
		"names the same service once more; nothing runs in it before it is dialled", askAgain))

	RunCommand = register(post("run command", session+"/cmd", Once, "runs the command a second time",
		"ErrOutcomeUnknown; with an ID, the command is looked up and adopted").streamed())
	StartCommand = register(post("start command", session+"/cmd", Once, "runs the command a second time",
		"ErrOutcomeUnknown; with an ID, the command is looked up and adopted"))
	ListCommands = register(read("list commands", session+"/cmd"))
	GetCommand   = register(read("get command", session+"/cmd/{command}"))
	CommandLogs  = register(read("read command logs", session+"/cmd/{command}/logs").streamed())
	// KillCommand sends SIGKILL, which can safely be sent twice.
	KillCommand = register(post("kill command", session+"/cmd/{command}/kill", Safe,
		"finds the process ended", "sent again; that the command has ended then is no error"))
	// SignalCommand sends any other signal.
	SignalCommand = register(post("kill command", session+"/cmd/{command}/kill", Settled,
		"delivers the signal twice, and many programs take a second SIGINT as an order to give up saving",
		"the command is looked at: one that has ended needs no signal; for one that runs, ErrOutcomeUnknown").
		late("delivers the signal, such as a SIGSTOP after the SIGCONT; the caller was told that it may"))

	// WriteStdin includes the position of its data.
	WriteStdin = register(post("write command input", session+"/cmd/{command}/stdin", Settled,
		"writes nothing where the sandbox knows positions, since it has had these bytes; the same bytes twice where it does not",
		"the same bytes are sent again at the same position; before the sandbox has shown that it counts, it is asked first, and ErrOutcomeUnknown if it does not"))

	MakeDir = register(post("make directory", session+"/fs/mkdir", Settled,
		"finds the directory there, and can't tell who made it", "ErrOutcomeUnknown: a directory that is there does not tell who made it"))
	WriteFiles = register(post("write files", session+"/fs/write", Safe,
		"unpacks the same files once more", askAgain).
		late("puts back what it has of the files; FileWriter, AppendFile and the input of a Cmd upload each attempt under a name of its own"))
	ReadFile = register(post("read file", session+"/fs/read", Safe, reads, askAgain).streamed())

	ListDrives       = register(read("list drives", "/v2/sandboxes/drives").ofDrives())
	GetOrCreateDrive = register(post("get or create drive", drive, Safe, "finds the drive that the first one made", askAgain).
				late("makes a drive of that name, empty, if it was deleted since").ofDrives())
	GetDrive  = register(read("get drive", drive).ofDrives())
	ForkDrive = register(post("fork drive", drive+"/fork", Settled,
		"is refused, since the name is taken", "ErrOutcomeUnknown; the caller looks the name up").ofDrives())
	DeleteDrive = register(Op{Name: "delete drive", Method: http.MethodDelete, Path: drive, Class: Settled, Delete: true, Drive: true,
		Again: "deletes whatever bears the name by then, with all that it holds",
		Lost:  "the name is looked up: none, or another drive, means done; the same one is deleted again",
		Late:  "deletes a drive that has taken the name since: the API deletes by name alone"})

	ListSnapshots  = register(read("list snapshots", "/v2/sandboxes/snapshots"))
	SnapshotTree   = register(read("read snapshot tree", "/v2/sandboxes/snapshots/tree"))
	GetSnapshot    = register(read("get snapshot", "/v2/sandboxes/snapshots/{snapshot}"))
	DeleteSnapshot = register(Op{Name: "delete snapshot", Method: http.MethodDelete, Path: "/v2/sandboxes/snapshots/{snapshot}", Class: Safe, Delete: true,
		Again: "finds nothing: an ID is never given a second time", Lost: "sent again; that there is none then means done"})
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

// Values yields the names of the template's placeholders with their values.
func (op *Op) Values(values []string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		rest := op.Path
		for _, v := range values {
			_, after, ok := strings.Cut(rest, "{")
			if !ok {
				return
			}
			var name string
			if name, rest, _ = strings.Cut(after, "}"); !yield(name, v) {
				return
			}
		}
	}
}

// placeholder returns the value of a placeholder of the template.
func (op *Op) placeholder(name string, values []string) string {
	for n, v := range op.Values(values) {
		if n == name {
			return v
		}
	}
	return ""
}
