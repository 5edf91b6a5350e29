package pool

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
)

// maxCreating limits the sandboxes that the upkeep creates at a time.
const maxCreating = 4

// wakeUpkeep wakes the upkeep, because a sandbox may be missing.
func (p *Pool) wakeUpkeep() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// upkeep extends, creates, adopts and deletes sandboxes until the pool is closed.
func (p *Pool) upkeep() {
	ticker := time.NewTicker(p.opts.Lease / 8)
	defer ticker.Stop()
	p.sweep()
	p.refill()
	for {
		select {
		case <-p.closing:
			return
		case <-p.wake:
			p.refill()
			continue
		case <-ticker.C:
		}
		p.extendAll()
		p.runIfOpen(p.sweep) // in a goroutine: it may wait for rate limits, and extending must not
		p.refill()
	}
}

// refill starts a goroutine for each missing sandbox, within the limits.
func (p *Pool) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && p.filling < maxCreating && len(p.ready)+p.filling < p.opts.Size && p.hasRoom() && !time.Now().Before(p.retryAt) {
		p.filling++
		p.work.Go(p.makeReady)
	}
}

// makeReady creates a sandbox and makes it available. Each failure in a row doubles the
// pause before the next creation, up to half a lease.
func (p *Pool) makeReady() {
	sb, err := p.create(p.ctx)
	if err == nil {
		if err = p.makeAvailable(p.ctx, sb); err != nil {
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
		time.AfterFunc(pause, p.wakeUpkeep)
	}
	p.mu.Unlock()
	p.wakeWaiters()
}

// makeAvailable marks a prepared sandbox as ready and adds it to the ready ones.
func (p *Pool) makeAvailable(ctx context.Context, sb *sandbox.Sandbox) error {
	err := p.markReady(ctx, sb)
	if err == nil && p.opts.Stopped {
		if _, err = sb.Stop(ctx, nil); err == nil {
			p.stopExtending(sb.Name())
		}
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	closed := p.closed && !p.opts.Stopped
	delete(p.suspects, sb.Name())
	if !closed {
		m := &readySandbox{sb.Name(), sb.Info().CreatedAt, sb}
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

// timeLeft returns how much time a session has left, as measured by the service's clock.
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
		return // it already runs, because each Take that waits at Max starts it
	}
	defer p.extending.Store(false)
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.extended))
	p.mu.Unlock()
	forEach(all, func(_ int, sb *sandbox.Sandbox) {
		ctx, cancel := context.WithTimeout(p.ctx, p.opts.Lease/4)
		defer cancel()
		err := sb.EnsureTimeLeft(ctx, p.opts.Lease*5/8, p.opts.Lease)
		p.updateAfterExtension(sb, err)
	})
}

// updateAfterExtension updates the pool after an attempt to extend sb, which returned err. A
// sandbox that has stopped no longer counts toward Max. It counts again once its holder
// has started it again.
func (p *Pool) updateAfterExtension(sb *sandbox.Sandbox, err error) {
	stopped := isGone(err) || err == nil && timeLeft(sb) == 0
	name := sb.Name()
	p.mu.Lock()
	wasLost := p.lost[name]
	switch {
	case isGone(err):
		delete(p.extended, name)
		fallthrough
	case stopped:
		p.ready = slices.DeleteFunc(p.ready, func(m *readySandbox) bool { return m.sb == sb })
		if p.taken[name] {
			p.lost[name] = true
		}
	case err == nil:
		delete(p.lost, name)
	}
	newlyLost := p.lost[name] && !wasLost
	p.mu.Unlock()
	if newlyLost {
		p.event("lost", name, sandbox.ErrStopped)
		p.wakeWaiters()
	}
}

// list returns all sandboxes of the pool.
func (p *Pool) list(ctx context.Context) ([]sandbox.Info, error) {
	infos, err := sandbox.Collect(p.client.List(ctx, &sandbox.ListOptions{Tags: map[string]string{Tag: p.opts.Name}, Limit: 50}))
	// The pool may delete these sandboxes, so don't rely on the service's filter.
	return slices.DeleteFunc(infos, func(info sandbox.Info) bool { return info.Tags[Tag] != p.opts.Name }), err
}

// isRunning reports whether a sandbox of that status runs, starts or stops.
func isRunning(status sandbox.Status) bool {
	switch status {
	case sandbox.StatusRunning, sandbox.StatusPending, sandbox.StatusStopping, sandbox.StatusSnapshotting:
		return true
	}
	return false
}

// sweep lists all sandboxes of the pool, adopts ready ones that a killed process has
// left, and deletes abandoned ones.
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
		adopt, abandoned := p.classify(infos)
		forEach(adopt, func(_ int, info sandbox.Info) { p.adopt(p.ctx, info) })
		forEach(abandoned, func(_ int, info sandbox.Info) {
			if _, err := p.deleteUnclaimed(p.ctx, &readySandbox{name: info.Name, created: info.CreatedAt}, "abandoned"); err != nil && p.ctx.Err() == nil {
				p.event("could not be deleted", info.Name, err)
			}
		})
	}
	p.mu.Lock()
	p.sweeping = false
	p.mu.Unlock()
	p.wakeWaiters()
}

// classify returns the sandboxes to adopt and those to delete. If the ready sandboxes
// are stopped, it also replaces p.ready.
func (p *Pool) classify(infos []sandbox.Info) (adopt, abandoned []sandbox.Info) {
	p.mu.Lock()
	defer p.mu.Unlock()
	listed := map[string]bool{}
	var stopped []*readySandbox
	for _, info := range infos {
		listed[info.Name] = true
		suspect := p.suspects[info.Name]
		age := p.client.Age(info.CreatedAt)
		other := !p.isOwnVersion(info.Name)
		switch {
		case p.extended[info.Name] != nil && !p.lost[info.Name], p.claiming[info.Name]: // in use by this process
		case isRunning(info.Status):
			if !p.opts.Stopped && !suspect && !other && -p.client.Age(info.ExpiresAt) < p.opts.Lease*3/8 {
				adopt = append(adopt, info)
			}
		case !p.opts.Stopped && p.client.Age(info.StatusUpdatedAt) > p.opts.Lease/4,
			p.opts.Stopped && age > p.opts.MaxAge+p.opts.Lease,               // too old; a Take that began before MaxAge would have started it by now
			p.opts.Stopped && other && info.CreatedAt.Before(p.firstCreated): // a younger one belongs to a newer deployment
			abandoned = append(abandoned, info)
		case p.opts.Stopped && !other && age < p.opts.MaxAge:
			stopped = append(stopped, &readySandbox{name: info.Name, created: info.CreatedAt})
		}
	}
	for name := range p.suspects {
		if !listed[name] {
			delete(p.suspects, name)
		}
	}
	if p.opts.Stopped { // all processes share the stopped ones
		p.ready = stopped
	}
	return adopt, abandoned
}

// adopt adds a ready sandbox that no process extends to the ready ones of this process.
func (p *Pool) adopt(ctx context.Context, info sandbox.Info) {
	sb, err := p.client.Get(ctx, info.Name, &sandbox.GetOptions{NoResume: true})
	if err != nil || !sb.Info().CreatedAt.Equal(info.CreatedAt) {
		return
	}
	if timeLeft(sb) > p.opts.Lease/2 {
		return // another process has extended it
	}
	if !p.isUnclaimed(ctx, sb) {
		p.setSuspect(info.Name) // not yet ready, or taken
		return
	}
	if err := sb.CurrentSession().ExtendTimeout(ctx, p.opts.Lease); err != nil {
		return
	}
	p.mu.Lock()
	if !p.closed {
		p.ready = append(p.ready, &readySandbox{info.Name, info.CreatedAt, sb})
		p.extended[info.Name] = sb
	}
	p.mu.Unlock()
	p.event("adopted", info.Name, nil)
}

// deleteUnclaimed deletes a sandbox that is not taken, and reports whether it is gone.
// It claims a running sandbox, for which m.sb is set, before deleting it. Without m.sb it
// deletes the sandbox only if it is not running.
func (p *Pool) deleteUnclaimed(ctx context.Context, m *readySandbox, why string) (deleted bool, err error) {
	sb := m.sb
	if sb != nil {
		if state, err := p.claimMark(ctx, sb); err == nil && state == notClaimed {
			return false, nil
		}
	} else {
		if sb, err = p.client.Get(ctx, m.name, &sandbox.GetOptions{NoResume: true}); err != nil {
			if isGone(err) {
				return true, nil
			}
			return false, err
		}
		if isRunning(sb.Status()) || !sb.Info().CreatedAt.Equal(m.created) {
			return false, nil // it is taken, or another sandbox has this name
		}
	}
	p.stopExtending(m.name)
	err = sb.Delete(ctx, nil)
	if isGone(err) {
		err = nil
	}
	p.event("deleted", m.name, err, slog.String("why", why))
	return err == nil, err
}

// forEach calls fn for every element, at most 16 at a time, and waits.
func forEach[T any](list []T, fn func(int, T)) {
	var wg sync.WaitGroup
	running := make(chan struct{}, 16)
	for i, element := range list {
		running <- struct{}{}
		wg.Go(func() {
			defer func() { <-running }()
			fn(i, element)
		})
	}
	wg.Wait()
}
