package conformance

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
	"unicode/utf16"
)

// capture is a writer that keeps what it is given.
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

// capturePair is the writers of one command. failed is how the piping of a
// detached command in the background has ended, when it has failed; ended is
// closed when it has ended.
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

// opPiped waits until the writers of a command have so much, 3 s at most. When
// the stream isn't held open, it also waits for the copying to end: with all the
// output written, this SDK still confirms that the log is at its end, and the
// next step must not get in between.
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), 3*time.Second)
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

// has says whether the writer got n characters; the one that was not given
// never has any.
func (c *capture) has(n int) bool {
	if c == nil {
		return n == 0
	}
	return len(utf16.Encode([]rune(c.text()))) >= n
}
