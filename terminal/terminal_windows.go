package terminal

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

var exitSignals = []os.Signal{os.Interrupt}

// prepareTerminal sets up the local console: raw input, and output that interprets
// escape sequences.
func prepareTerminal(stdin, stdout *os.File) (restore func() error, err error) {
	restoreInput, err := makeRaw(stdin)
	if err != nil {
		return nil, err
	}
	out := windows.Handle(stdout.Fd())
	var mode uint32
	if windows.GetConsoleMode(out, &mode) != nil {
		return restoreInput, nil // not a console
	}
	want := mode | windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING | windows.DISABLE_NEWLINE_AUTO_RETURN
	if err := windows.SetConsoleMode(out, want); err != nil {
		return nil, errors.Join(err, restoreInput())
	}
	return func() error { return errors.Join(windows.SetConsoleMode(out, mode), restoreInput()) }, nil
}

// watchSize calls resize whenever the window's size has changed. There is no
// signal for that, so it polls.
func watchSize(ctx context.Context, o *Options, resize func()) {
	cols, rows, _ := o.size()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if c, r, ok := o.size(); ok && (c != cols || r != rows) {
				cols, rows = c, r
				resize()
			}
		case <-ctx.Done():
			return
		}
	}
}

// input reads a console. A read can't be stopped: it ends at the next key.
type input struct{ *os.File }

func newInput(f *os.File) (*input, error) { return &input{f}, nil }

func (i *input) start(f func()) { go f() }

func (i *input) stop() {}
