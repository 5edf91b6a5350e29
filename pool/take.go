package pool

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/observe"
)

// Box is a sandbox that was taken from a pool. The pool keeps it running until it is
// returned, deleted or kept.
type Box struct {
	*sandbox.Sandbox
	// Key is the key that Take was called with.
	Key string

	p        *Pool
	released sync.Once
}

// Take returns a ready sandbox, or creates one if none is ready. key appears in log
// records and in [Box].Key; it may be empty. Take costs one request for a ready sandbox
// that runs, and two for a stopped one. At Options.Max it waits. If ctx ends, no sandbox
// stays taken.
func (p *Pool) Take(ctx context.Context, key string) (*Box, error) {
	if err := entry.Check(ctx, p != nil && p.client != nil, "pool", "the Pool"); err != nil {
		return nil, err
	}
	ctx, end := observe.Start(ctx, p.client.Observer(), observe.Event{Kind: observe.Take})
	sb, ready, err := p.take(ctx)
	end(err, func(e *observe.Event) {
		if err == nil {
			e.Sandbox, e.Cause = sb.Name(), map[bool]string{true: "ready", false: "made"}[ready]
		}
	})
	if err != nil {
		return nil, err
	}
	p.event("taken", sb.Name(), nil, slog.String("key", key), slog.Bool("ready", ready))
	return &Box{Sandbox: sb, Key: key, p: p}, nil
}

// take implements Take. It also reports whether the sandbox was ready.
func (p *Pool) take(ctx context.Context) (sb *sandbox.Sandbox, ready bool, err error) {
	for {
		m, err := p.reserve(ctx)
		if err != nil {
			return nil, false, err
		}
		p.wakeUpkeep()
		var sb *sandbox.Sandbox
		if m == nil {
			if sb, err = p.create(ctx); err == nil {
				err = p.check(ctx, sb)
			}
		} else {
			sb, err = p.claim(ctx, m)
		}
		p.mu.Lock()
		p.taking--
		if m != nil {
			delete(p.claiming, m.name)
		}
		if sb != nil && err == nil {
			p.taken[sb.Name()] = true
			p.extended[sb.Name()] = sb
		}
		p.mu.Unlock()
		switch {
		case sb != nil && err == nil:
			return sb, m != nil, nil
		case err != nil:
			p.wakeWaiters()
			return nil, false, err
		}
		p.wakeWaiters()
	}
}

// reserve removes a sandbox from the ready ones and returns it. It returns nil if the
// caller has to create one.
func (p *Pool) reserve(ctx context.Context) (*readySandbox, error) {
	for first := true; ; first = false {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, ErrClosed
		}
		for len(p.ready) > 0 {
			i := 0              // the oldest
			if p.opts.Stopped { // choose at random, because all processes choose from the same sandboxes
				i = rand.IntN(len(p.ready))
			}
			m := p.ready[i]
			p.ready = slices.Delete(p.ready, i, i+1)
			if p.client.Age(m.created) < p.opts.MaxAge {
				p.taking++
				p.claiming[m.name] = true
				p.mu.Unlock()
				return m, nil
			}
			if !p.opts.Stopped { // a sweep deletes stopped ones
				p.work.Go(func() { _, _ = p.deleteUnclaimed(p.ctx, m, "too old") })
			}
		}
		if p.hasRoom() {
			p.taking++
			p.mu.Unlock()
			return nil, nil
		}
		freed := p.freed
		p.mu.Unlock()
		if first { // a taken sandbox may have stopped, which makes room
			p.runIfOpen(p.extendAll)
		}
		select {
		case <-freed:
		case <-p.closing:
		case <-ctx.Done():
			return nil, fmt.Errorf("%v, and Options.Max is %d: Take waited for a Box to be returned or deleted: %w", p, p.opts.Max, context.Cause(ctx))
		}
	}
}

// hasRoom reports whether Max allows one more sandbox. Stopped ones don't count: all
// processes share them.
func (p *Pool) hasRoom() bool {
	n := p.filling + p.taking + len(p.taken) - len(p.lost)
	if !p.opts.Stopped {
		n += len(p.ready)
	}
	return p.opts.Max == 0 || n < p.opts.Max
}

// wakeWaiters wakes the calls that wait for room below Max.
func (p *Pool) wakeWaiters() {
	p.mu.Lock()
	close(p.freed)
	p.freed = make(chan struct{})
	p.mu.Unlock()
	p.wakeUpkeep()
}

// claim takes a ready sandbox. It returns nil if the sandbox was taken or is unusable,
// and an error if ctx has ended.
func (p *Pool) claim(ctx context.Context, m *readySandbox) (*sandbox.Sandbox, error) {
	sb, err := m.sb, error(nil)
	if p.opts.Stopped {
		sb, err = p.client.Get(ctx, m.name, nil) // resumes it
	}
	state := notClaimed
	if err == nil {
		state, err = p.claimMark(ctx, sb)
	}
	switch {
	case ctx.Err() != nil:
		if sb != nil {
			p.runIfOpen(func() { p.dropClaim(sb) })
		}
		return nil, context.Cause(ctx)
	case err != nil:
		p.setSuspect(m.name)
		if !isGone(err) {
			p.event("unusable", m.name, err)
		}
		return nil, nil
	case state == notClaimed:
		p.setSuspect(m.name)
		p.event("already taken", m.name, nil)
		return nil, nil
	case state == abandoned:
		p.event("found abandoned", m.name, nil)
		p.remove(ctx, sb)
		return nil, nil
	}
	if p.check(ctx, sb) != nil {
		return nil, context.Cause(ctx)
	}
	return sb, nil
}

// check deletes a sandbox that does not pass Options.Check.
func (p *Pool) check(ctx context.Context, sb *sandbox.Sandbox) error {
	if p.opts.Check == nil {
		return nil
	}
	err := p.opts.Check(ctx, sb)
	if err != nil {
		p.event("failed its check", sb.Name(), err)
		p.remove(ctx, sb)
		err = fmt.Errorf("pool: Check of %q: %w", sb.Name(), err)
	}
	return err
}

// dropClaim deletes a sandbox that a canceled call tried to claim, with unknown outcome. It
// first claims the sandbox itself. If it can't, because that call or another one has claimed
// the sandbox, the sandbox is deleted once no process keeps it running.
func (p *Pool) dropClaim(sb *sandbox.Sandbox) {
	if state, err := p.claimMark(p.ctx, sb); err != nil || state == notClaimed {
		p.setSuspect(sb.Name())
		return
	}
	p.remove(p.ctx, sb)
}

// runIfOpen runs fn in a goroutine unless the pool is closed.
func (p *Pool) runIfOpen(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Go(fn)
	}
}

// setSuspect stops extending a running sandbox that is taken or not yet ready, and keeps
// it from being adopted.
func (p *Pool) setSuspect(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.extended, name)
	p.suspects[name] = true
}

// release calls fn once and removes the sandbox from the taken ones.
func (b *Box) release(fn func() error) error {
	err := fmt.Errorf("pool: %q was already returned, deleted or kept", b.Name())
	b.released.Do(func() {
		err = fn()
		b.p.mu.Lock()
		delete(b.p.taken, b.Name())
		delete(b.p.lost, b.Name())
		b.p.mu.Unlock()
		b.p.wakeWaiters()
	})
	return err
}

func (b *Box) check(ctx context.Context) error {
	return entry.Check(ctx, b != nil && b.p != nil, "pool", "the Box")
}

// Delete deletes the sandbox. It makes two requests.
func (b *Box) Delete(ctx context.Context) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	return b.release(func() error {
		b.p.stopExtending(b.Name())
		err := b.Sandbox.Delete(ctx, nil)
		if isGone(err) {
			err = nil
		}
		b.p.event("deleted", b.Name(), err, slog.String("key", b.Key))
		return err
	})
}

// Return calls Options.Reset and gives the sandbox back to the pool. The caller must not
// use it afterwards, because another Take may get it. Without a Reset, or if Reset
// fails, the sandbox is deleted.
func (b *Box) Return(ctx context.Context) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	if b.p.opts.Reset == nil {
		return b.Delete(ctx)
	}
	return b.release(func() error {
		err := b.p.opts.Reset(ctx, b.Sandbox)
		if err == nil {
			err = b.p.makeAvailable(ctx, b.Sandbox)
		}
		if err != nil {
			b.p.remove(ctx, b.Sandbox)
		}
		b.p.event("returned", b.Name(), err, slog.String("key", b.Key))
		return err
	})
}

// Keep removes the sandbox from the pool for good: it removes the pool's tag, and the
// pool no longer extends the sandbox. It makes two requests.
func (b *Box) Keep(ctx context.Context) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	tags := map[string]string{}
	for k, v := range b.Info().Tags { // a non-nil empty map clears them
		if k != Tag {
			tags[k] = v
		}
	}
	if err := b.Update(ctx, &sandbox.UpdateOptions{Tags: tags}); err != nil {
		return err
	}
	return b.release(func() error {
		b.p.stopExtending(b.Name())
		return nil
	})
}
