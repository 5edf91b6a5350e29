package modeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/terminal"
)

// record is the beginning of a script. It appends a unique line to the journal, so that the
// test can tell two runs apart.
const record = `read -r u < /proc/sys/kernel/random/uuid; echo "$0 $u" >> ` + journal + `; `

// name returns the name of the step's command in the journal.
func (w *world) name() string { return fmt.Sprintf("c%d", w.n) }

// outcome is the result of a command according to a call.
type outcome struct {
	code int
	out  string
	errs string // standard error
	err  error
	gone bool // the call reported that the command ended with its session
}

// checkOutcome compares an outcome with the journal and with the expected output.
func (w *world) checkOutcome(got outcome, text, errs string) error {
	runs, err := w.runs(w.name())
	_, streamed := errors.AsType[*sandbox.StreamError](got.err)
	refused := errors.Is(got.err, errMissing) || errors.Is(got.err, errHook)
	switch ended := w.hasHappened(Stopped, Expired, Crashed, Deleted, Hooked, GiveUp); {
	case err != nil:
		return err
	case runs > 1:
		return fmt.Errorf("the command has run %d times; the call returned %s", runs, describeError(got.err))
	case runs > 0 && refused && !streamed && w.active.When == Before:
		return fmt.Errorf("the command has run, but the call returned %w", got.err)
	case got.gone:
	case got.err != nil && !w.permits(got.err):
		return mustNotFail(got.err)
	case got.err != nil:
	case got.code == 3 && (got.out != text || got.errs != errs):
		return fmt.Errorf("no error, but %d of %d bytes of stdout, %d of %d bytes of stderr", len(got.out), len(text), len(got.errs), len(errs))
	case got.code != 3 && !(ended && strings.HasPrefix(text, got.out) && strings.HasPrefix(errs, got.errs)):
		return fmt.Errorf("no error, but exit code %d, %d of %d bytes of stdout, %d of %d bytes of stderr", got.code, len(got.out), len(text), len(got.errs), len(errs))
	case runs != 1 && !w.hasHappened(Crashed, Deleted):
		return fmt.Errorf("no error, but the command has run %d times", runs)
	}
	return nil
}

// command runs a command that prints lines to its two streams in turn. The log has many
// records, because the service can't join records of different streams.
func (w *world) command(ctx context.Context, s Step) error {
	last := "exit 3"
	if s.Fault.When == Within && slices.Contains(sandboxFaults, s.Fault.What) {
		last = "sleep 2; exit 3" // so that the session ends before the command
	}
	args := []string{"-c", record + fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); if [ $((i %% 20)) = 0 ]; then echo "$0 $i" >&2; sleep 0.01; else echo "$0 $i"; fi; done; %s`, s.Size, last), w.name()}
	got := w.call(ctx, s, args)
	w.net.disarm()
	var out, errs strings.Builder
	for i := 1; i <= s.Size; i++ {
		to := &out
		if i%20 == 0 {
			to = &errs
		}
		fmt.Fprintf(to, "%s %d\n", w.name(), i)
	}
	return w.checkOutcome(got, out.String(), errs.String())
}

func (w *world) call(ctx context.Context, s Step, args []string) (got outcome) {
	var done *sandbox.CommandResult
	var cmd *sandbox.Command
	switch s.Kind {
	case Run:
		w.arm(s)
		if done, got.err = w.box.RunCommand(ctx, "sh", args, nil); got.err == nil {
			got.code = done.ExitCode
			got.read(ctx, done.Command)
		}
	case Start:
		w.arm(s)
		var out, errs bytes.Buffer
		if cmd, got.err = w.box.StartCommand(ctx, "sh", args, &sandbox.StartOptions{Stdout: &out, Stderr: &errs}); got.err == nil {
			if done, got.err = cmd.Wait(ctx); got.err == nil {
				got.code, got.out, got.errs = done.ExitCode, out.String(), errs.String()
			} else {
				_ = cmd.WaitOutput(ctx) // wait until nothing writes to the buffers
			}
		}
	case Fetch:
		if cmd, got.err = w.box.StartCommand(ctx, "sh", args, nil); got.err == nil {
			if done, got.err = cmd.Wait(ctx); got.err == nil {
				w.arm(s)
				got.code = done.ExitCode
				got.read(ctx, cmd)
			}
		}
		if w.hasHappened(Stopped, Expired, Crashed, Hooked) && errors.Is(got.err, sandbox.ErrStopped) {
			got.gone = true
		}
	case Follow:
		if cmd, got.err = w.box.StartCommand(ctx, "sh", args, nil); got.err == nil {
			w.arm(s)
			for entry, err := range cmd.Logs(ctx) {
				if got.err = err; entry.Stream == sandbox.Stderr {
					got.errs += entry.Data
				} else {
					got.out += entry.Data
				}
			}
			w.net.disarm()
			if got.err == nil {
				if done, got.err = cmd.Wait(w.ctx); got.err == nil {
					got.code = done.ExitCode
				}
			}
		}
		// A command and its log end with their session.
		if w.hasHappened(sandboxFaults...) && (errors.Is(got.err, sandbox.ErrStopped) || errors.Is(got.err, sandbox.ErrNotFound)) {
			got.gone = true
		}
	case Exec:
		w.arm(s)
		var b []byte
		b, got.err = w.box.CommandContext(ctx, "sh", args...).Output()
		if e, ok := errors.AsType[*sandbox.ExitError](got.err); ok {
			got = outcome{code: e.ExitCode(), out: string(b), errs: string(e.Stderr)}
		}
	case Keep:
		id := fmt.Sprintf("keep-%d", w.n)
		if got.err = w.box.Resume(ctx); got.err != nil { // a call of a Session does not resume the sandbox
			return got
		}
		begin := func(ctx context.Context) (*sandbox.Command, error) {
			session := w.box.CurrentSession()
			cmd, err := session.GetCommand(ctx, id)
			if errors.Is(err, sandbox.ErrNotFound) {
				cmd, err = session.StartCommand(ctx, "sh", args, &sandbox.StartOptions{ID: id})
			}
			return cmd, err
		}
		w.arm(s)
		_, first := begin(ctx)
		w.net.disarm()
		if e, ok := errors.AsType[*sandbox.APIError](first); ok && s.Fault.What == Odd && e.Status == http.StatusForbidden {
			first = nil // the start may fail with this status
		}
		if first != nil && !w.permits(first) && !w.hasHappened(sandboxFaults...) && !errors.Is(first, sandbox.ErrOutcomeUnknown) {
			return outcome{err: first}
		}
		if cmd, got.err = begin(w.ctx); got.err == nil {
			if done, got.err = cmd.Wait(w.ctx); got.err == nil {
				got.code = done.ExitCode
				got.read(w.ctx, cmd)
			}
		}
		if w.hasHappened(sandboxFaults...) && errors.Is(got.err, sandbox.ErrStopped) || w.hasHappened(Deleted) && errors.Is(got.err, sandbox.ErrNotFound) {
			got.gone = true
		}
	}
	return got
}

// read gets the output of an ended command.
func (o *outcome) read(ctx context.Context, cmd *sandbox.Command) {
	if o.out, o.err = cmd.Stdout(ctx); o.err == nil {
		o.errs, o.err = cmd.Stderr(ctx)
	}
}

// feed runs a command with an input of known length, which the client uploads as a file.
func (w *world) feed(ctx context.Context, s Step) error {
	text := strings.Repeat(w.name()+"\n", 200*s.Size)
	cmd := w.box.CommandContext(ctx, "sh", "-c", record+"cat; exit 3", w.name())
	cmd.Stdin = strings.NewReader(text)
	w.arm(s)
	out, err := cmd.Output()
	w.net.disarm()
	got := outcome{err: err}
	if e, ok := errors.AsType[*sandbox.ExitError](err); ok {
		got = outcome{code: e.ExitCode(), out: string(out)}
	}
	if got.code == 126 && w.hasHappened(Cleaned, Crashed) {
		return nil // the file was lost with its session
	}
	return w.checkOutcome(got, text, "")
}

// talk writes to a command while it runs. The command repeats its input.
func (w *world) talk(ctx context.Context, s Step) error {
	cmd, err := w.box.StartCommand(ctx, "sh", []string{"-c", record + "cat; exit 3", w.name()}, &sandbox.StartOptions{AttachStdin: true})
	if err != nil {
		return mustNotFail(err)
	}
	w.arm(s)
	var text strings.Builder
	in := cmd.Stdin(ctx)
	for i := range 4 {
		if _, err = fmt.Fprintf(io.MultiWriter(&text, in), "%s %s %d\n", w.name(), strings.Repeat("x", s.Size), i); err != nil {
			break
		}
		testkit.Linger(5 * time.Millisecond) // so that the client sends each line with its own request
	}
	err = errors.Join(err, in.Close())
	w.net.disarm()
	got := outcome{err: err}
	if err != nil {
		if killErr := cmd.Kill(w.ctx); killErr != nil && !w.hasHappened(sandboxFaults...) {
			return killErr
		}
	} else if done, err := cmd.Wait(w.ctx); err == nil {
		got.code = done.ExitCode
		got.out, got.err = cmd.Stdout(w.ctx)
	} else {
		got.err = err
	}
	if got.err != nil && w.hasHappened(sandboxFaults...) {
		return nil // the input was lost with its session
	}
	return w.checkOutcome(got, text.String(), "")
}

var ready = regexp.MustCompile("^ready$")

// kill sends one signal to a command that counts them.
func (w *world) kill(ctx context.Context, s Step) error {
	gone := fmt.Sprintf("go%d", w.n)
	// The loop starts no program. If a trapped signal arrives when a program ends, bash 5.2
	// may miss the end of the program, and then waits forever.
	cmd, err := w.box.StartCommand(ctx, "bash", []string{"-c", `mkfifo "$0.pause"; exec 3<>"$0.pause"; trap 'echo signal' INT; echo ready; while [ ! -e "$0" ]; do read -r -t 0.02 <&3; done`, gone}, nil)
	if err != nil {
		return mustNotFail(err)
	}
	if _, err := cmd.WaitForLog(ctx, ready); err != nil {
		return mustNotFail(err)
	}
	w.arm(s)
	err = cmd.Signal(ctx, sandbox.SIGINT)
	w.net.disarm()
	if w.hasHappened(sandboxFaults...) {
		return nil // the command has ended with its session
	}
	if err != nil && !w.permits(err) {
		return mustNotFail(err)
	}
	if err := w.same.FS().WriteFile(w.ctx, gone, nil, 0o644); err != nil {
		return err
	}
	out, outErr := cmd.CombinedOutput(w.ctx)
	if n := strings.Count(out, "signal"); outErr != nil || n > 1 || n == 0 && err == nil {
		return fmt.Errorf("one Kill, which returned %s, delivered %d signals; reading the output: %s", describeError(err), n, describeError(outErr))
	}
	return nil
}

// killed runs a command that the end of its call must kill.
func (w *world) killed(ctx context.Context, s Step) error {
	w.arm(s)
	timer := time.AfterFunc(time.Second, w.cancel)
	_, err := w.box.RunCommand(ctx, "sh", []string{"-c", record + "echo ready; exec sleep 300", w.name()}, &sandbox.CommandOptions{KillOnCancel: true})
	timer.Stop()
	w.net.disarm()
	runs, runsErr := w.runs(w.name())
	switch {
	case runsErr != nil:
		return runsErr
	case runs > 1:
		return fmt.Errorf("the command has run %d times; the call returned %s", runs, describeError(err))
	case err != nil && !errors.Is(err, errGivenUp) && !w.permits(err):
		return mustNotFail(err)
	case w.hasHappened(Deleted) || s.Fault.What != GiveUp && (w.net.hasHit(w.active, Signal) || s.Fault.On == Creds):
		return nil // the error says that the client could not kill the command
	}
	if _, err := w.same.RunCommand(w.ctx, "true", nil, nil); err != nil { // makes sure that a session is running
		return err
	}
	cmds, err := w.same.ListCommands(w.ctx)
	if err != nil {
		return err
	}
	for _, cmd := range cmds {
		if args := cmd.Args(); len(args) != 3 || args[2] != w.name() {
			continue
		}
		limited, cancel := context.WithTimeout(w.ctx, stepTime)
		_, err := cmd.Wait(limited)
		cancel()
		if err != nil {
			return fmt.Errorf("the command must be killed, but is still running: %w", err)
		}
	}
	return nil
}

// shell runs a program in a terminal.
func (w *world) shell(ctx context.Context, s Step) error {
	w.arm(s)
	sh, err := terminal.Open(ctx, w.box, &terminal.ShellOptions{Command: "sh", Args: []string{"-c", record + fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "$0 $i"; i=$((i+1)); done; exit 3`, s.Size), w.name()}})
	got := outcome{err: err}
	if err == nil {
		var out []byte
		out, got.err = io.ReadAll(sh)
		got.out = strings.ReplaceAll(string(out), "\r\n", "\n")
		if code, err := sh.Wait(ctx); err == nil {
			got.code = code
		} else {
			got.err = err
		}
		_ = sh.Close() // returns no error
	}
	w.net.disarm()
	if e, ok := errors.AsType[*terminal.ShellError](got.err); ok && w.hasHappened(sandboxFaults...) {
		// A terminal ends with its session, and the error must name this session.
		return onlyIf(strings.Contains(e.Error(), "in session sbx_"), "the error does not name the session: %v", e)
	}
	return w.checkOutcome(got, w.text(s), "")
}

// describeError describes the error that a call returned.
func describeError(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// onlyIf returns nil if holds is true, and otherwise the described error.
func onlyIf(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// text returns the expected output of the step's command.
func (w *world) text(s Step) string {
	var text strings.Builder
	for i := range s.Size {
		fmt.Fprintf(&text, "%s %d\n", w.name(), i)
	}
	return text.String()
}
