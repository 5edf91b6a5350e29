package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// signalForwarder forwards this program's signals to a command and its children, as a
// terminal does with Ctrl-C. It sends SIGKILL for the second signal, and then calls giveUp,
// so that the program no longer waits for the command.
type signalForwarder struct {
	giveUp context.CancelFunc
	warn   func(text, hint string)

	mu      sync.Mutex
	kill    func(sandbox.Signal) error // nil until the command has started
	pending sandbox.Signal
	count   int
	last    syscall.Signal

	signals chan os.Signal
	done    chan struct{}
	wg      sync.WaitGroup
}

// forwardSignals starts to forward signals. It also forwards the signal that has already
// ended ctx, if any.
func forwardSignals(ctx context.Context, screen *screen.Screen, killAtOnce bool) *signalForwarder {
	p := &signalForwarder{warn: screen.Warn, signals: make(chan os.Signal, 8), done: make(chan struct{})}
	if early := screen.Signal(); ctx.Err() != nil && early != 0 {
		p.handle(early, killAtOnce)
	}
	signal.Notify(p.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	p.wg.Go(func() {
		for {
			select {
			case got := <-p.signals:
				number, _ := got.(syscall.Signal)
				p.handle(number, killAtOnce)
			case <-p.done:
				return
			}
		}
	})
	return p
}

func (p *signalForwarder) stop() {
	signal.Stop(p.signals)
	close(p.done)
	p.wg.Wait()
}

func (p *signalForwarder) handle(s syscall.Signal, atOnce bool) {
	p.mu.Lock()
	p.count++
	p.last = s
	send := sandbox.Signal(s)
	if p.count > 1 || atOnce {
		send = sandbox.SIGKILL
	}
	kill := p.kill
	if kill == nil {
		p.pending = send
	}
	count := p.count
	p.mu.Unlock()
	if kill != nil {
		p.send(kill, send, count > 1)
	}
}

// send sends a signal in the background, so that it does not delay the next one. It warns
// if the children did not get the signal. It ignores other errors, because the command may
// have ended and the caller waits for its end. After the last signal, the caller stops
// waiting.
func (p *signalForwarder) send(kill func(sandbox.Signal) error, sig sandbox.Signal, last bool) {
	p.wg.Go(func() {
		if err := kill(sig); errors.Is(err, sandbox.ErrChildren) {
			p.warn("only the command got the signal; its children may still run", "stopping the sandbox ends them all")
		}
		if last {
			p.giveUp()
		}
	})
}

func (p *signalForwarder) started(kill func(sandbox.Signal) error) {
	p.mu.Lock()
	p.kill = kill
	pending := p.pending
	p.mu.Unlock()
	if pending != 0 {
		p.send(kill, pending, false)
	}
}

// exitError returns the signal's exit code instead of an error that is due to a signal.
func (p *signalForwarder) exitError(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count > 0 && errors.Is(err, context.Canceled) {
		return screen.ExitWith(signalExitCode(p.last))
	}
	return err
}
