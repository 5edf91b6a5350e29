package pool

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
)

// makers is how many sandboxes the upkeep makes at a time.
const makers = 4

// nudge wakes the upkeep, since a sandbox may be missing.
func (p *Pool) nudge() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// keepUp extends, makes, adopts and deletes until the pool is closed.
func (p *Pool) keepUp() {
	beat := time.NewTicker(p.opts.Lease / 8)
	defer beat.Stop()
	p.sweep()
	p.refill()
	for {
		select {
		case <-p.end:
			return
		case <-p.poke:
			p.refill()
			continue
		case <-beat.C:
		}
		p.extendAll()
		p.spawn(p.sweep) // it may wait for rate limits, and extending must not
		p.refill()
	}
}

// refill starts makers for what is missing.
func (p *Pool) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && p.filling < makers && len(p.ready)+p.filling < p.opts.Size && p.room() && !time.Now().Before(p.retryAt) {
		p.filling++
		p.work.Go(p.makeReady)
	}
}

// makeReady makes a sandbox that is ready. After a failure the next is made later,
// up to half a lease.
func (p *Pool) makeReady() {
	sb, err := p.make(p.ctx)
	if err == nil {
		if err = p.offer(p.ctx, sb); err != nil {
			if !errors.Is(err, ErrClosed) {
				p.event("could not be made ready", sb.Name(), err)
			}
			p.remove(p.ctx, sb)
		}
	}
	p.mu.Lock()
	p.filling--
	if err == nil {
		p.failures = 0
	} else {
		pause := min(time.Second<<min(p.failures, 10), p.opts.Lease/2)
		p.retryAt = time.Now().Add(pause)
		p.failures++
		time.AfterFunc(pause, p.nudge)
	}
	p.mu.Unlock()
	p.free()
}

// offer makes a prepared sandbox ready.
func (p *Pool) offer(ctx context.Context, sb *sandbox.Sandbox) error {
	err := p.unmark(ctx, sb)
	if err == nil && p.opts.Stopped {
		if _, err = sb.Stop(ctx, nil); err == nil {
			p.letGo(sb.Name())
		}
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	closed := p.closed && !p.opts.Stopped
	delete(p.suspects, sb.Name())
	if !closed {
		m := &member{sb.Name(), sb.Info().CreatedAt, sb}
		if p.opts.Stopped {
			m.sb = nil // another process may start it
		}
		p.ready = append(p.ready, m)
	}
	p.mu.Unlock()
	if closed {
		return ErrClosed
	}
	return nil
}

// timeLeft is by the service's clock, from which this machine's may differ.
func timeLeft(sb *sandbox.Sandbox) time.Duration {
	cur := sb.CurrentSession()
	if cur == nil {
		return 0
	}
	return cur.TimeLeft()
}

// extendAll extends the running sandboxes whose time runs low.
func (p *Pool) extendAll() {
	if !p.extending.CompareAndSwap(false, true) {
		return // as many as wait at Max ask for it
	}
	defer p.extending.Store(false)
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.alive))
	p.mu.Unlock()
	each(all, func(_ int, sb *sandbox.Sandbox) {
		ctx, cancel := context.WithTimeout(p.ctx, p.opts.Lease/4)
		defer cancel()
		err := sb.EnsureTimeLeft(ctx, p.opts.Lease*5/8, p.opts.Lease)
		p.note(sb, err)
	})
}

// note frees the place of a sandbox that has ended, which err of an extension and the
// handle tell. One that its holder starts again takes it again.
func (p *Pool) note(sb *sandbox.Sandbox, err error) {
	ended := gone(err) || err == nil && timeLeft(sb) == 0
	name := sb.Name()
	p.mu.Lock()
	was := p.lost[name]
	switch {
	case gone(err):
		delete(p.alive, name)
		fallthrough
	case ended:
		p.ready = slices.DeleteFunc(p.ready, func(m *member) bool { return m.sb == sb })
		if p.held[name] {
			p.lost[name] = true
		}
	case err == nil:
		delete(p.lost, name)
	}
	told := p.lost[name] && !was
	p.mu.Unlock()
	if told {
		p.event("lost", name, sandbox.ErrStopped)
		p.free()
	}
}

// list returns all sandboxes of the pool.
func (p *Pool) list(ctx context.Context) ([]sandbox.Info, error) {
	infos, err := sandbox.Collect(p.client.List(ctx, &sandbox.ListOptions{Tags: map[string]string{Tag: p.opts.Name}, Limit: 50}))
	// Sandboxes of this list may be deleted, so don't rely on the filter.
	return slices.DeleteFunc(infos, func(info sandbox.Info) bool { return info.Tags[Tag] != p.opts.Name }), err
}

// current reports whether a sandbox is of this version, by its name.
func (p *Pool) current(name string) bool { return strings.HasPrefix(name, p.prefix) }

// running reports whether a sandbox of that status runs, starts or stops.
func running(status sandbox.Status) bool {
	switch status {
	case sandbox.StatusRunning, sandbox.StatusPending, sandbox.StatusStopping, sandbox.StatusSnapshotting:
		return true
	}
	return false
}

// sweep looks at all sandboxes of the pool: it adopts what a killed process kept
// ready, and deletes what is abandoned.
func (p *Pool) sweep() {
	p.mu.Lock()
	if p.sweeping {
		p.mu.Unlock()
		return
	}
	p.sweeping = true
	p.mu.Unlock()
	infos, err := p.list(p.ctx)
	if err != nil && p.ctx.Err() == nil {
		p.event("could not be listed", "", err)
	}
	if err == nil {
		adopt, abandoned := p.sort(infos)
		each(adopt, func(_ int, info sandbox.Info) { p.adopt(p.ctx, info) })
		each(abandoned, func(_ int, info sandbox.Info) {
			if _, err := p.discard(p.ctx, &member{name: info.Name, created: info.CreatedAt}, "abandoned"); err != nil && p.ctx.Err() == nil {
				p.event("could not be deleted", info.Name, err)
			}
		})
	}
	p.mu.Lock()
	p.sweeping = false
	p.mu.Unlock()
	p.free()
}

// sort returns the sandboxes to adopt and to delete, and notes those that are
// stopped and ready.
func (p *Pool) sort(infos []sandbox.Info) (adopt, abandoned []sandbox.Info) {
	p.mu.Lock()
	defer p.mu.Unlock()
	listed := map[string]bool{}
	var stopped []*member
	for _, info := range infos {
		listed[info.Name] = true
		suspect := p.suspects[info.Name]
		age := p.client.Age(info.CreatedAt)
		other := !p.current(info.Name)
		switch {
		case p.alive[info.Name] != nil && !p.lost[info.Name], p.trying[info.Name]: // ours
		case running(info.Status):
			if !p.opts.Stopped && !suspect && !other && -p.client.Age(info.ExpiresAt) < p.opts.Lease*3/8 {
				adopt = append(adopt, info)
			}
		case !p.opts.Stopped && p.client.Age(info.StatusUpdatedAt) > p.opts.Lease/4,
			p.opts.Stopped && age > p.opts.MaxAge+p.opts.Lease,        // one taken at that age is running by then
			p.opts.Stopped && other && info.CreatedAt.Before(p.began): // a later one is of a process that goes on
			abandoned = append(abandoned, info)
		case p.opts.Stopped && !other && age < p.opts.MaxAge:
			stopped = append(stopped, &member{name: info.Name, created: info.CreatedAt})
		}
	}
	for name := range p.suspects {
		if !listed[name] {
			delete(p.suspects, name)
		}
	}
	if p.opts.Stopped { // all processes share them
		p.ready = stopped
	}
	return adopt, abandoned
}

// adopt keeps a ready sandbox that no process extends.
func (p *Pool) adopt(ctx context.Context, info sandbox.Info) {
	sb, err := p.client.Get(ctx, info.Name, &sandbox.GetOptions{NoResume: true})
	if err != nil || !sb.Info().CreatedAt.Equal(info.CreatedAt) {
		return
	}
	if timeLeft(sb) > p.opts.Lease/2 {
		return // extended in the meantime
	}
	if !p.unclaimed(ctx, sb) {
		p.suspect(info.Name) // unfinished, or taken
		return
	}
	if err := sb.CurrentSession().ExtendTimeout(ctx, p.opts.Lease); err != nil {
		return
	}
	p.mu.Lock()
	if !p.closed {
		p.ready = append(p.ready, &member{info.Name, info.CreatedAt, sb})
		p.alive[info.Name] = sb
	}
	p.mu.Unlock()
	p.event("adopted", info.Name, nil)
}

// discard deletes a sandbox that is not taken, and reports whether it is gone.
// With a handle the sandbox runs; without one it is deleted only if it does not
// run.
func (p *Pool) discard(ctx context.Context, m *member, why string) (deleted bool, err error) {
	sb := m.sb
	if sb != nil {
		if state, err := p.mark(ctx, sb); err == nil && state == notOurs {
			return false, nil
		}
	} else {
		if sb, err = p.client.Get(ctx, m.name, &sandbox.GetOptions{NoResume: true}); err != nil {
			if gone(err) {
				return true, nil
			}
			return false, err
		}
		if running(sb.Status()) || !sb.Info().CreatedAt.Equal(m.created) {
			return false, nil // somebody has it
		}
	}
	p.letGo(m.name)
	err = sb.Delete(ctx, nil)
	if gone(err) {
		err = nil
	}
	p.event("deleted", m.name, err, slog.String("why", why))
	return err == nil, err
}

// each calls fn for every element, a few at a time, and waits.
func each[T any](all []T, fn func(int, T)) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i, one := range all {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			fn(i, one)
		})
	}
	wait.Wait()
}
