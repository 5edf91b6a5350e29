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

// Box is a sandbox that was taken from a pool. It runs, and the pool keeps it
// running, until it is given back, deleted or kept.
type Box struct {
	*sandbox.Sandbox
	// Key is what Take was called with.
	Key string

	p    *Pool
	over sync.Once
}

// Take returns a sandbox that is not taken, and makes one if none is ready. key
// appears in log records and in [Box].Key; it may be empty. Take costs one
// request for a ready sandbox that runs, two for one that is stopped. At
// Options.Max it waits. If ctx ends, nothing stays taken.
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

// take is Take, and reports whether the sandbox was ready.
func (p *Pool) take(ctx context.Context) (sb *sandbox.Sandbox, ready bool, err error) {
	for {
		m, err := p.pick(ctx)
		if err != nil {
			return nil, false, err
		}
		p.nudge()
		var sb *sandbox.Sandbox
		if m == nil {
			if sb, err = p.make(ctx); err == nil {
				err = p.check(ctx, sb)
			}
		} else {
			sb, err = p.claim(ctx, m)
		}
		p.mu.Lock()
		p.taking--
		if m != nil {
			delete(p.trying, m.name)
		}
		if sb != nil && err == nil {
			p.held[sb.Name()] = true
			p.alive[sb.Name()] = sb
		}
		p.mu.Unlock()
		switch {
		case sb != nil && err == nil:
			return sb, m != nil, nil
		case err != nil:
			p.free()
			return nil, false, err
		}
		p.free()
	}
}

// pick chooses a sandbox that is ready, or nil if one has to be made.
func (p *Pool) pick(ctx context.Context) (*member, error) {
	for first := true; ; first = false {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, ErrClosed
		}
		for len(p.ready) > 0 {
			i := 0 // the oldest; of those that all processes see, any
			if p.opts.Stopped {
				i = rand.IntN(len(p.ready))
			}
			m := p.ready[i]
			p.ready = slices.Delete(p.ready, i, i+1)
			if p.client.Age(m.created) < p.opts.MaxAge {
				p.taking++
				p.trying[m.name] = true
				p.mu.Unlock()
				return m, nil
			}
			if !p.opts.Stopped { // a sweep deletes those
				p.work.Go(func() { _, _ = p.discard(p.ctx, m, "too old") })
			}
		}
		if p.room() {
			p.taking++
			p.mu.Unlock()
			return nil, nil
		}
		freed := p.freed
		p.mu.Unlock()
		if first { // a handle may know already that its place is free
			p.spawn(p.extendAll)
		}
		select {
		case <-freed:
		case <-p.end:
		case <-ctx.Done():
			return nil, fmt.Errorf("%v, and Options.Max is %d: Take waited for a Box to be given back or deleted: %w", p, p.opts.Max, context.Cause(ctx))
		}
	}
}

// room reports whether one more may be made. Stopped ones are not this process's.
func (p *Pool) room() bool {
	all := p.filling + p.taking + len(p.held) - len(p.lost)
	if !p.opts.Stopped {
		all += len(p.ready)
	}
	return p.opts.Max == 0 || all < p.opts.Max
}

// free wakes calls that wait for room.
func (p *Pool) free() {
	p.mu.Lock()
	close(p.freed)
	p.freed = make(chan struct{})
	p.mu.Unlock()
	p.nudge()
}

// claim takes a sandbox that is ready. It returns nil if another has taken it or
// it is unusable, and an error if ctx has ended.
func (p *Pool) claim(ctx context.Context, m *member) (*sandbox.Sandbox, error) {
	sb, err := m.sb, error(nil)
	if p.opts.Stopped {
		sb, err = p.client.Get(ctx, m.name, nil) // which starts it
	}
	state := notOurs
	if err == nil {
		state, err = p.mark(ctx, sb)
	}
	switch {
	case ctx.Err() != nil:
		if sb != nil {
			p.spawn(func() { p.abandon(sb) })
		}
		return nil, context.Cause(ctx)
	case err != nil:
		p.suspect(m.name)
		if !gone(err) {
			p.event("not fit", m.name, err)
		}
		return nil, nil
	case state == notOurs:
		p.suspect(m.name)
		p.event("taken by another", m.name, nil)
		return nil, nil
	case state == abandoned:
		p.event("was abandoned", m.name, nil)
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
		p.event("did not pass its check", sb.Name(), err)
		p.remove(ctx, sb)
		err = fmt.Errorf("pool: Check of %q: %w", sb.Name(), err)
	}
	return err
}

// abandon deletes a sandbox that a call may have claimed which was given up. If it
// has, or another did, the sandbox is deleted once no process keeps it running.
func (p *Pool) abandon(sb *sandbox.Sandbox) {
	if state, err := p.mark(p.ctx, sb); err != nil || state == notOurs {
		p.suspect(sb.Name())
		return
	}
	p.remove(p.ctx, sb)
}

// spawn runs fn unless the pool is closed.
func (p *Pool) spawn(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Go(fn)
	}
}

// suspect notes a sandbox that is taken or unfinished.
func (p *Pool) suspect(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.alive, name)
	p.suspects[name] = true
}

// end calls fn once, and makes room in the pool.
func (b *Box) end(fn func() error) error {
	err := fmt.Errorf("pool: %q was given back, deleted or kept already", b.Name())
	b.over.Do(func() {
		err = fn()
		b.p.mu.Lock()
		delete(b.p.held, b.Name())
		delete(b.p.lost, b.Name())
		b.p.mu.Unlock()
		b.p.free()
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
	return b.end(func() error {
		b.p.letGo(b.Name())
		err := b.Sandbox.Delete(ctx, nil)
		if gone(err) {
			err = nil
		}
		b.p.event("deleted", b.Name(), err, slog.String("key", b.Key))
		return err
	})
}

// Return gives the sandbox back to the pool: it calls Options.Reset, and another
// Take may get the sandbox, so the caller must not use it after that. Without a
// Reset, or if that fails, it is deleted.
func (b *Box) Return(ctx context.Context) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	if b.p.opts.Reset == nil {
		return b.Delete(ctx)
	}
	return b.end(func() error {
		err := b.p.opts.Reset(ctx, b.Sandbox)
		if err == nil {
			err = b.p.offer(ctx, b.Sandbox)
		}
		if err != nil {
			b.p.remove(ctx, b.Sandbox)
		}
		b.p.event("given back", b.Name(), err, slog.String("key", b.Key))
		return err
	})
}

// Keep takes the sandbox out of the pool for good: it removes the pool's tag and
// no longer extends the sandbox. It makes two requests.
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
	return b.end(func() error {
		b.p.letGo(b.Name())
		return nil
	})
}
