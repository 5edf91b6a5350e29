package sandboxtest

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// interactivePath is the path of terminals, followed by the session's ID.
const interactivePath = "/ws/interactive/"

const (
	// startTimeout limits the time until the client has sent its start message.
	startTimeout = 30 * time.Second
	// maxFrame limits a frame from the client.
	maxFrame = 1 << 20
	// inputSize is the size of the buffer for input.
	inputSize = 32 << 10
)

// openInteractive handles POST …/interactive.
func (c *call) openInteractive() error {
	sess, err := c.sessionAndBody(&struct{}{})
	if err != nil {
		return err
	}
	_, err = sess.Use(c.ctx)
	url := "ws://" + c.s.address() + interactivePath + c.values[0]
	return c.respond(http.StatusOK, wire.InteractiveResponse{URL: url, Token: sess.Token}, err)
}

// terminalRoute returns the route of a session's terminals. A response contains it only
// if the request asks for the system's routes.
func (s *Server) terminalRoute(sess wire.Session) wire.Route {
	subdomain := strings.ToLower(strings.ReplaceAll(sess.ID, "_", "-"))
	return wire.Route{URL: "http://" + s.address(), Subdomain: subdomain, Port: sess.InteractivePort, System: true}
}

// terminalMessage is a text frame in either direction.
type terminalMessage struct {
	Type    string   `json:"type"`
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"`
	Cwd     string   `json:"cwd,omitempty"`
	Cols    int      `json:"cols,omitempty"`
	Rows    int      `json:"rows,omitempty"`
	Sudo    bool     `json:"sudo,omitempty"`
	Code    *int     `json:"code,omitempty"`
}

func (m *terminalMessage) size() backend.Size {
	return backend.Size{Cols: cells(m.Cols, 80), Rows: cells(m.Rows, 24)}
}

func cells(n, otherwise int) uint16 {
	if n < 1 || n > wire.MaxCells {
		n = otherwise
	}
	return uint16(n)
}

// serveInteractive serves the WebSocket of a terminal.
func (s *Server) serveInteractive(w http.ResponseWriter, r *http.Request, id string) {
	sess, err := s.store.Session(id)
	if err != nil {
		reply.WriteError(w, reply.ErrSessionNotFound)
		return
	}
	if subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("token")), []byte(sess.Token)) != 1 {
		reply.WriteError(w, reply.Fail(http.StatusUnauthorized, "unauthorized", "The token is missing or wrong."))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer s.store.OnClose(cancel)()
	machine, err := sess.Use(ctx)
	if err != nil {
		reply.WriteError(w, reply.ErrStopped)
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // the token is what counts
	if err != nil {
		return // Accept has responded
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxFrame)
	t := &terminal{conn: conn, ctx: ctx}
	t.run(sess, machine)
}

// terminal connects a client's WebSocket to a program in a terminal.
type terminal struct {
	conn *websocket.Conn
	ctx  context.Context
}

func (t *terminal) run(sess *store.Session, machine *box.Box) {
	start, err := t.readStart()
	if err != nil {
		t.conn.Close(websocket.StatusPolicyViolation, err.Error())
		return
	}
	env := sess.Environ()
	spec := backend.Spec{
		Path: start.Command, Args: start.Args, Dir: start.Cwd,
		Env: append(append([]string{"TERM=xterm-256color"}, env...), start.Env...),
		TTY: new(start.size()), Stdout: t,
	}
	if start.Sudo {
		spec.User = "root"
	}
	proc, err := machine.Start(t.ctx, spec)
	if failure, ok := errors.AsType[*backend.LaunchError](err); ok {
		_, _ = io.WriteString(t, failure.Message+"\n") // the client may have gone
		t.sendExit(failure.Code)
		return
	}
	if err != nil {
		t.conn.Close(websocket.StatusInternalError, "the program can't be started")
		return
	}
	// The terminal hangs up when the client leaves.
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	inputDone := make(chan struct{})
	go func() {
		defer close(inputDone)
		defer func() { _ = proc.SignalGroup(1) }() // hang up; the program may have ended
		t.forwardInput(ctx, proc)
	}()
	<-proc.Done()
	t.sendExit(proc.Wait())
	cancel()
	<-inputDone
}

// sendExit tells the client how the program ended.
func (t *terminal) sendExit(code int) {
	data, _ := json.Marshal(terminalMessage{Type: "exit", Code: &code}) // always encodes
	if t.conn.Write(t.ctx, websocket.MessageText, data) == nil {
		t.conn.Close(websocket.StatusNormalClosure, "")
	}
}

// readStart reads the first frame, which says what to run.
func (t *terminal) readStart() (*terminalMessage, error) {
	ctx, cancel := context.WithTimeout(t.ctx, startTimeout)
	defer cancel()
	kind, data, err := t.conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	m := new(terminalMessage)
	if kind != websocket.MessageText || json.Unmarshal(data, m) != nil || m.Type != "start" {
		return nil, reply.Invalid("the first frame should be a start message.")
	}
	m.Command = cmp.Or(m.Command, "/bin/bash")
	for _, kv := range m.Env {
		if key, _, ok := strings.Cut(kv, "="); !ok || key == "" {
			return nil, reply.Invalid("`env` should have entries of the form KEY=value.")
		}
	}
	return m, nil
}

// forwardInput sends the client's input to a program until the client disconnects.
func (t *terminal) forwardInput(ctx context.Context, proc interface {
	io.Writer
	Resize(backend.Size) error
}) {
	buf := make([]byte, inputSize)
	for {
		kind, r, err := t.conn.Reader(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			if _, err := io.CopyBuffer(proc, r, buf); err != nil {
				return
			}
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return
		}
		var m terminalMessage
		if json.Unmarshal(data, &m) == nil && m.Type == "resize" {
			_ = proc.Resize(m.size()) // the program may have ended
		}
	}
}

// Write sends output.
func (t *terminal) Write(p []byte) (int, error) {
	if err := t.conn.Write(t.ctx, websocket.MessageBinary, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
