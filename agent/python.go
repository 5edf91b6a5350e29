package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-vercel/sandbox"
)

//go:embed interpreter.py
var interpreterSource string

// interpreter is a Python process in a sandbox that keeps its variables between calls. The code
// of one call is a cell.
type interpreter struct {
	mu            sync.Mutex // held by the call that runs a cell
	cmd           *sandbox.Command
	stdin         io.WriteCloser
	out           *cellOutput
	ended         chan struct{} // closed when the process has ended and err is set
	err           error         // of Command.Wait
	cancel        context.CancelFunc
	startedBefore bool // a process was started before
}

type pythonInput struct {
	Code    string  `json:"code" is:"the program; variables of earlier calls are there"`
	Timeout float64 `json:"timeout_seconds,omitempty" is:"how long it may run; {timeout} by default, {longest} at most"`
}

func (in *pythonInput) program() *Program { return &Program{Name: "python3", Stdin: in.Code} }

// cellEnd is the message that the interpreter writes at the end of a cell.
type cellEnd struct {
	OK    bool     `json:"ok"`
	Files []string `json:"files"` // that the cell created or changed
	More  int      `json:"more"`  // number of files beyond those in Files, if positive
}

func runPython(ctx context.Context, c *call, in *pythonInput) (Result, error) {
	if strings.TrimSpace(in.Code) == "" {
		return Result{}, modelErrorf("The code is empty.")
	}
	p := &c.state.python
	p.mu.Lock()
	defer p.mu.Unlock()
	note, err := p.start(ctx, c)
	if err != nil {
		return Result{}, err
	}
	limit := c.limits().timeout(in.Timeout)
	mark := rand.Text()
	cell, err := json.Marshal(map[string]string{"code": in.Code, "mark": mark})
	if err != nil {
		return Result{}, modelErrorf("The code is not text.")
	}
	out := newWindow(c.limits().dataBytes())
	end := p.out.startCell(mark, out)
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = p.stdin.Write(append(cell, '\n')) // if the interpreter has ended, p.ended reports it
	}()
	data := map[string]any{"timed_out": false}
	var how string
	gone := false
	var files cellEnd
	select {
	case files = <-end:
		how = "Done."
		if !files.OK {
			how = "It failed."
		}
	case <-p.ended:
		gone = true
		select { // the cell may have ended just before the interpreter
		case files = <-end:
			how = "Done."
			gone = false
		default:
		}
		if !gone {
			break
		}
		if code, known := p.cmd.ExitStatus(); known {
			how = "The interpreter ended. " + describeExit(code)
		} else {
			err = p.err
		}
	case <-wait.Done():
		gone, how = true, fmt.Sprintf("It was still running after %v and was stopped.", limit)
		data["timed_out"] = true
		err = killTree(ctx, p.cmd)
	}
	if gone {
		p.reset()
		how += " Variables are gone; the next call starts a new interpreter."
	}
	p.out.flush()
	<-written // the write ends at the latest with the interpreter
	if ctx.Err() != nil {
		return Result{}, errors.Join(ctx.Err(), err)
	}
	if err != nil && !errors.Is(err, sandbox.ErrChildren) {
		return partialResult(out), err
	}
	text, omitted := outputText(out)
	data["omitted_bytes"] = omitted
	return Result{Text: note + how + describeFiles(files) + text, Failed: gone, Data: data}, nil
}

// describeFiles lists the files that a cell has created or changed.
func describeFiles(end cellEnd) string {
	if len(end.Files) == 0 {
		return ""
	}
	const most = 20
	var names []string
	for _, name := range end.Files[:min(len(end.Files), most)] {
		if len(name) > 60 {
			name = name[:28] + "…" + name[len(name)-28:]
		}
		names = append(names, oneLine(name))
	}
	text := " Files made or changed:\n" + wrapData(strings.Join(names, "\n"))
	if more := len(end.Files) - len(names) + max(end.More, 0); more > 0 {
		text += fmt.Sprintf("\nand %d more.", more)
	}
	return text
}

// start starts the interpreter if it does not run. The note tells the model if
// variables are gone.
func (p *interpreter) start(ctx context.Context, c *call) (note string, err error) {
	if p.cmd != nil {
		select {
		case <-p.ended:
		default:
			if p.cmd.SessionID() == sessionID(c.sb) && !hasStopped(c.sb) {
				return "", nil
			}
		}
		p.reset()
	}
	c.state.mu.Lock()
	known := c.state.variablesKnownLost || c.Conversation == ""
	c.state.variablesKnownLost = true
	c.state.mu.Unlock()
	switch {
	case p.startedBefore:
		note = "The interpreter was restarted: variables of earlier calls are gone. "
	case !known: // another process may have used an interpreter
		note = "The interpreter is new: it has no variables of earlier calls. "
	}
	live, cancel, started := startContext(ctx, c.t.ctx)
	out := &cellOutput{}
	cmd, err := c.sb.StartCommand(live, "python3", []string{"-E", "-X", "utf8", "-u", "-c", interpreterSource}, &sandbox.StartOptions{
		AttachStdin: true, Stdout: out, Stderr: out, KillOnCancel: true,
	})
	if !started() || err != nil {
		cancel()
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, errors.ErrUnsupported) {
			err = modelErrorf("This sandbox can't keep an interpreter. Write a program to a file and run it.")
		}
		return "", err
	}
	p.cmd, p.out, p.cancel, p.ended, p.startedBefore = cmd, out, cancel, make(chan struct{}), true
	p.stdin = cmd.Stdin(live)
	ended := p.ended
	c.t.wg.Go(func() {
		defer close(ended)
		_, p.err = cmd.Wait(live)
	})
	return note, nil
}

// hasStopped reports whether a handle knows that its session has ended.
func hasStopped(sb *sandbox.Sandbox) bool {
	switch sb.Status() {
	case sandbox.StatusStopped, sandbox.StatusFailed, sandbox.StatusAborted:
		return true
	}
	return false
}

// reset ends the process, so that the next cell starts another one.
func (p *interpreter) reset() {
	p.cancel()
	<-p.ended
	p.cmd = nil
}

// cellOutput passes the output of the interpreter to the cell that runs.
type cellOutput struct {
	mu      sync.Mutex
	pending []byte
	mark    []byte // precedes the cellEnd in the output; nil between cells
	out     *window
	end     chan cellEnd
}

// startCell registers a cell. The channel receives its cellEnd.
func (s *cellOutput) startCell(mark string, out *window) <-chan cellEnd {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark, s.out, s.end = []byte("\n\x1e"+mark), out, make(chan cellEnd, 1)
	s.pending = s.pending[:0]
	return s.end
}

// Write implements [io.Writer]. It never fails.
func (s *cellOutput) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mark == nil { // discard the output of threads between cells
		return len(p), nil
	}
	const longest = 64 << 10 // maximum length of a cellEnd
	s.pending = append(s.pending, p...)
	for {
		at := bytes.Index(s.pending, s.mark)
		if at < 0 {
			s.pass(max(0, len(s.pending)-len(s.mark)))
			return len(p), nil
		}
		s.pass(at)
		text, _, whole := bytes.Cut(s.pending[len(s.mark):], []byte("\n"))
		if !whole && len(s.pending) < longest {
			return len(p), nil
		}
		var end cellEnd
		if json.Unmarshal(text, &end) == nil {
			s.end <- end
			s.mark = nil
			return len(p), nil
		}
		// Code can learn its mark and write many false ends at once. Keep none of them
		// pending, because they would fill the memory.
		s.pass(len(s.mark))
	}
}

// flush passes the pending output to the cell and ends the cell.
func (s *cellOutput) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mark != nil {
		s.pass(len(s.pending))
		s.mark = nil
	}
}

// pass passes the first n bytes of the pending output to the cell.
func (s *cellOutput) pass(n int) {
	_, _ = s.out.Write(s.pending[:n]) // it never fails
	s.pending = s.pending[n:]
}
