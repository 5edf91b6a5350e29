package conformance

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
	"unicode/utf16"
)

// capture is a writer that records what is written to it.
type capture struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(p)
}

func (c *capture) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}

// capturePair holds the writers of one command. When copying the output of a
// detached command has ended, ended is closed, and failed holds the error, if
// any.
type capturePair struct {
	stdout, stderr *capture
	detached       bool
	ended          chan struct{}

	mu     sync.Mutex
	failed any
}

func (p *capturePair) setFailed(e any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = e
}

func (p *capturePair) failure() any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

func (p *capturePair) value() map[string]any {
	out := map[string]any{}
	if p.stdout != nil {
		out["stdout"] = normText(p.stdout.text())
	}
	if p.stderr != nil {
		out["stderr"] = normText(p.stderr.text())
	}
	if e := p.failure(); e != nil {
		out["error"] = e
	}
	return out
}

// opPiped waits until the writers of a command have received the given number
// of characters, for at most a minute. When the stream isn't held open, it also
// waits until copying has ended: after all the output is written, this SDK
// still confirms that the log is complete, and that request must not mix with
// those of the next step.
func opPiped(c *call) (any, error) {
	var a struct {
		Stdout int  `json:"stdout"`
		Stderr int  `json:"stderr"`
		Error  bool `json:"error"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	c.d.mu.Lock()
	p := c.d.piped[*c.step.On]
	c.d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), time.Minute)
	defer cancel()
	for !(p.stdout.has(a.Stdout) && p.stderr.has(a.Stderr) && (!a.Error || p.failure() != nil)) {
		if !pause(ctx, 20*time.Millisecond) {
			break
		}
	}
	if !slices.ContainsFunc(c.d.scenario.Server, func(ex Exchange) bool { return ex.Hold }) {
		select {
		case <-p.ended:
		case <-ctx.Done():
		}
	}
	return p.value(), nil
}

// has reports whether at least n characters were written. A nil capture never
// has any.
func (c *capture) has(n int) bool {
	if c == nil {
		return n == 0
	}
	return len(utf16.Encode([]rune(c.text()))) >= n
}
