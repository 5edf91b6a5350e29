package api

import (
	"net/http"
	"strings"
)

// Class says when an operation may be sent again.
type Class int

const (
	// Safe operations have the same result however often they are done. They
	// are repeated after connection errors, 429 and 5xx.
	Safe Class = iota
	// Once operations must not act twice. They are repeated only when the
	// request surely did not act: it was never written to a connection, or it
	// was answered 429.
	Once
	// Named is a create that carries a name: sent as Once, and when the outcome
	// is unknown the caller can look the name up.
	Named
)

// String returns the name that the documentation uses for the class.
func (c Class) String() string {
	switch c {
	case Safe:
		return "safe"
	case Once:
		return "once"
	case Named:
		return "create with a name"
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
	// Stream marks answers that are handed over unread.
	Stream bool
	// Delete marks operations for which "not found" after an attempt with an
	// unknown outcome means that the earlier attempt succeeded.
	Delete bool
}

// Table lists every operation. It is the only place that decides how an
// operation is retried.
var Table []*Op

func register(op Op) *Op {
	Table = append(Table, &op)
	return &op
}

const session = "/v2/sandboxes/sessions/{session}"

// The operations of the API.
var (
	CreateSandbox = register(Op{Name: "create sandbox", Method: http.MethodPost, Path: "/v2/sandboxes", Class: Once})
	CreateNamed   = register(Op{Name: "create sandbox", Method: http.MethodPost, Path: "/v2/sandboxes", Class: Named})
	ForkSandbox   = register(Op{Name: "fork sandbox", Method: http.MethodPost, Path: "/v2/sandboxes/{sandbox}/fork", Class: Once})
	ForkNamed     = register(Op{Name: "fork sandbox", Method: http.MethodPost, Path: "/v2/sandboxes/{sandbox}/fork", Class: Named})
	GetSandbox    = register(Op{Name: "get sandbox", Method: http.MethodGet, Path: "/v2/sandboxes/{sandbox}"})
	ListSandboxes = register(Op{Name: "list sandboxes", Method: http.MethodGet, Path: "/v2/sandboxes"})
	UpdateSandbox = register(Op{Name: "update sandbox", Method: http.MethodPatch, Path: "/v2/sandboxes/{sandbox}"})
	DeleteSandbox = register(Op{Name: "delete sandbox", Method: http.MethodDelete, Path: "/v2/sandboxes/{sandbox}", Delete: true})

	GetSession      = register(Op{Name: "get session", Method: http.MethodGet, Path: session})
	ListSessions    = register(Op{Name: "list sessions", Method: http.MethodGet, Path: "/v2/sandboxes/sessions"})
	StopSession     = register(Op{Name: "stop session", Method: http.MethodPost, Path: session + "/stop"})
	ExtendTimeout   = register(Op{Name: "extend timeout", Method: http.MethodPost, Path: session + "/extend-timeout", Class: Once})
	SetPolicy       = register(Op{Name: "update network policy", Method: http.MethodPost, Path: session + "/network-policy"})
	CreateSnapshot  = register(Op{Name: "create snapshot", Method: http.MethodPost, Path: session + "/snapshot", Class: Once})
	OpenInteractive = register(Op{Name: "open interactive session", Method: http.MethodPost, Path: session + "/interactive"})

	RunCommand   = register(Op{Name: "run command", Method: http.MethodPost, Path: session + "/cmd", Class: Once, Stream: true})
	StartCommand = register(Op{Name: "start command", Method: http.MethodPost, Path: session + "/cmd", Class: Once})
	ListCommands = register(Op{Name: "list commands", Method: http.MethodGet, Path: session + "/cmd"})
	GetCommand   = register(Op{Name: "get command", Method: http.MethodGet, Path: session + "/cmd/{command}"})
	CommandLogs  = register(Op{Name: "read command logs", Method: http.MethodGet, Path: session + "/cmd/{command}/logs", Stream: true})
	KillCommand  = register(Op{Name: "kill command", Method: http.MethodPost, Path: session + "/cmd/{command}/kill"})

	MakeDir    = register(Op{Name: "make directory", Method: http.MethodPost, Path: session + "/fs/mkdir"})
	WriteFiles = register(Op{Name: "write files", Method: http.MethodPost, Path: session + "/fs/write"})
	ReadFile   = register(Op{Name: "read file", Method: http.MethodPost, Path: session + "/fs/read", Stream: true})

	ListSnapshots  = register(Op{Name: "list snapshots", Method: http.MethodGet, Path: "/v2/sandboxes/snapshots"})
	SnapshotTree   = register(Op{Name: "read snapshot tree", Method: http.MethodGet, Path: "/v2/sandboxes/snapshots/tree"})
	GetSnapshot    = register(Op{Name: "get snapshot", Method: http.MethodGet, Path: "/v2/sandboxes/snapshots/{snapshot}"})
	DeleteSnapshot = register(Op{Name: "delete snapshot", Method: http.MethodDelete, Path: "/v2/sandboxes/snapshots/{snapshot}", Delete: true})
)

// expand fills the template's placeholders, in order, and returns the path
// with its values as they are and with them escaped.
func (o *Op) expand(values []string) (plain, escaped string) {
	if len(values) == 0 {
		return o.Path, o.Path
	}
	var p, e strings.Builder
	rest := o.Path
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

// escapeSegment escapes all that encodeURIComponent does, so that a name is
// one segment of the path whatever is in it.
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

// placeholder returns the value given for a placeholder of the template.
func (o *Op) placeholder(name string, values []string) string {
	rest := o.Path
	for _, v := range values {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			return ""
		}
		var key string
		key, rest, _ = strings.Cut(after, "}")
		if key == name {
			return v
		}
	}
	return ""
}
