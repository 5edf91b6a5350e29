package box

import (
	"cmp"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// pipes carry the input and output of one process.
type pipes struct {
	guard  *guard.Guard
	child  []*os.File // closed once the process has them
	parent []*os.File
	outs   []*output
	order  *arrivals      // reads the outputs in the order of arrival; nil where that is impossible
	wg     sync.WaitGroup // of the goroutines that read outputs
}

func (p *pipes) closeChild() { backend.CloseAll(p.child) }
func (p *pipes) closeParent() {
	backend.CloseAll(p.parent)
	if p.order != nil {
		p.order.close()
	}
}

// openPipes opens the pipes or the terminal of a command, and sets its standard files.
func (p *Process) openPipes(spec *backend.Spec) (*pipes, error) {
	c := &pipes{guard: p.box.host.guard}
	if spec.TTY != nil {
		term, err := p.box.machine.OpenTerminal(*spec.TTY, spec.User)
		if err != nil {
			return nil, err
		}
		p.term = term
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = term.Slave, term.Slave, term.Slave
		c.child = append(c.child, term.Slave)
		c.parent = append(c.parent, term.Master)
		c.addOutput(term.Master, spec.Stdout)
		c.outs[0].paged = runtime.GOOS == "linux" // elsewhere reading the rest would wait
		return c, nil
	}
	fail := func(err error) (*pipes, error) {
		c.closeChild()
		c.closeParent()
		return nil, err
	}
	if spec.OpenStdin {
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		openToAll(r)
		p.cmd.Stdin = r
		c.child = append(c.child, r)
		c.parent = append(c.parent, w)
		p.input = w
	}
	for _, out := range []struct {
		to  io.Writer
		set *io.Writer
	}{{spec.Stdout, &p.cmd.Stdout}, {spec.Stderr, &p.cmd.Stderr}} {
		if out.to == nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		openToAll(w)
		*out.set = w
		c.child = append(c.child, w)
		c.parent = append(c.parent, r)
		c.addOutput(r, out.to)
	}
	if len(c.outs) > 1 {
		// Watch the pipes before any output. If that fails, the order of outputs is
		// unknown.
		c.order, _ = newArrivals(c.outs)
	}
	return c, nil
}

// openToAll lets a process of any user open the pipe as /dev/stdout, as scripts do. It
// ignores errors, because pipes without permissions don't need it.
func openToAll(pipe *os.File) { _ = pipe.Chmod(0o666) }

func (p *pipes) addOutput(r *os.File, w io.Writer) {
	w = cmp.Or(w, io.Discard)
	p.outs = append(p.outs, &output{r: r, w: w, guard: p.guard, grace: graceAfterExit})
}

// startCopying starts the copying.
func (p *pipes) startCopying() {
	if p.order != nil {
		p.guard.Go(&p.wg, "reading output", p.order.copy)
	} else {
		for _, o := range p.outs {
			p.guard.Go(&p.wg, "reading output", o.copy)
		}
	}
}

// finish is called when the process has exited. It waits until the output was delivered
// and closes the pipes.
func (p *pipes) finish() {
	if p.order != nil {
		p.order.processExited()
	} else {
		for _, o := range p.outs {
			o.processExited()
		}
	}
	p.wg.Wait()
	p.closeParent()
}

// output copies data from a pipe. After the process has exited it stops once the pipe has
// been silent for the grace period, because a daemon that the process started may hold
// the pipe open forever.
type output struct {
	r      *os.File
	w      io.Writer
	guard  *guard.Guard
	grace  time.Duration
	paged  bool // a read returns at most a page, even if there is more
	exited atomic.Bool
}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (o *output) processExited() {
	o.exited.Store(true)
	// The deadline also ends a pending read. If pipes have no deadlines, closing ends it.
	if o.r.SetReadDeadline(time.Now().Add(o.grace)) != nil {
		time.AfterFunc(o.grace, func() { _ = o.r.Close() })
	}
}

// write delivers output. If the writer fails, the output is lost, but reading continues:
// otherwise the process would wait forever.
func (o *output) write(data []byte) {
	o.guard.Do("delivering output", func() { _, _ = o.w.Write(data) })
}

func (o *output) copy() {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	var left int // bytes read since the exit
	for {
		exited := o.exited.Load()
		if exited {
			// The write may have taken longer than the deadline.
			_ = o.r.SetReadDeadline(time.Now().Add(o.grace))
		}
		n, err := o.r.Read(buf[:])
		if exited && errors.Is(err, os.ErrDeadlineExceeded) {
			// Only a read without a deadline proves that the pipe is empty: on a busy
			// machine the deadline may pass before the read starts.
			if n, err = backend.ReadAvailable(o.r, buf[:]); n == 0 {
				return
			}
		}
		for more := n; o.paged && more > 0 && n < len(buf); n += more {
			more, _ = backend.ReadAvailable(o.r, buf[n:])
		}
		if n > 0 {
			o.write(buf[:n])
		}
		if exited {
			left += n
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !exited:
		case err != nil, left > maxAfterExit:
			return
		}
	}
}
