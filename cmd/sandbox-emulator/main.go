// Sandbox-emulator serves a local implementation of the Vercel Sandbox API
// that runs real processes on this machine.
//
//	sandbox-emulator [flags] COMMAND ARGS…
//
// starts it on a free port of the loopback interface, sets the environment so
// that clients find it, runs the command, and exits with its status:
//
//	sandbox-emulator go test ./...
//
// Node and Python programs find it too, with the official clients as they are:
// @vercel/sandbox, the sandbox command, and vercel for Python. What they send to
// vercel.com, api.vercel.com and *.vercel.run goes to the emulator; the hooks for
// that are in NODE_OPTIONS and PYTHONPATH, and VERCEL_OIDC_TOKEN holds a token
// that only the emulator accepts.
//
// Without a command it serves until it is interrupted, and prints how to point
// a program at it. The flags are
//
//	-addr ADDR    listen on ADDR; the default is a free port of 127.0.0.1
//	-host NAME    answer requests to NAME too, such as a container's name for others;
//	              may be given several times
//	-mode MODE    require "namespace" or "folder"; see package sandboxtest
//	-token TOKEN  accept TOKEN instead of one generated for this run; other users
//	              of the machine can see the arguments of a program
//	-image NAME   accept the image NAME, which has the machine's programs
//	-state DIR    keep sandboxes and snapshots in DIR from one run to the next
//	-name NAME=TARGET
//	              let sandboxes find the server TARGET, host:port or http://host:port,
//	              under NAME; may be given several times
//	-home FOLDER  show sandboxes FOLDER of home directories, in addition to the folders
//	              in PATH; may be given several times
//	-unenforced-policies
//	              accept network policies that have no effect on this machine, as in
//	              folder mode or without /dev/net/tun, which are refused otherwise
//	-rate-limits  refuse what the service would refuse
//	-realistic    be as slow as the service
//	-control      serve the control API (requests, clock, faults);
//	              SANDBOX_CONTROL_URL and SANDBOX_CONTROL_TOKEN lead there
//	-doctor       print what sandboxes can do on this machine, what is missing and the
//	              command that adds it, and exit
//	-v            print each request in one line
//
// It is not a security boundary: what runs in its sandboxes runs on this machine.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// The exit codes. The last two are what a shell returns for a command that can't be run.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitNotRunnable = 126
	exitNotFound    = 127
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options are the values of the flags.
type options struct {
	addr, mode, state, token string
	hosts, homeFolders       []string
	images                   []string
	names                    map[string]string
	rateLimits, realistic    bool
	control, doctor          bool
	unenforced               bool
	verbose                  bool
	command                  []string
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := options{names: make(map[string]string)}
	flags := flag.NewFlagSet("sandbox-emulator", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.addr, "addr", "", "listen on `ADDR` instead of a free port of 127.0.0.1")
	flags.Func("host", "answer requests to the host `NAME` too; may be given several times", func(name string) error {
		o.hosts = append(o.hosts, name)
		return nil
	})
	flags.StringVar(&o.mode, "mode", "", "require a `MODE` of running commands: namespace or folder")
	flags.Func("image", "accept the image `NAME`, which has this machine's programs; may be given several times", func(name string) error {
		o.images = append(o.images, name)
		return nil
	})
	flags.Func("name", "let sandboxes find a server under a name, `NAME=TARGET`: TARGET is host:port or http://host:port; may be given several times", addPair(o.names, "TARGET"))
	flags.Func("home", "show sandboxes `FOLDER` of home directories, in addition to the folders in PATH; may be given several times", func(name string) error {
		o.homeFolders = append(o.homeFolders, name)
		return nil
	})
	flags.BoolVar(&o.unenforced, "unenforced-policies", false, "accept network policies that have no effect on this machine, instead of refusing them")
	flags.BoolVar(&o.rateLimits, "rate-limits", false, "refuse what the service would refuse")
	flags.BoolVar(&o.realistic, "realistic", false, "be as slow as the service")
	flags.BoolVar(&o.control, "control", false, "serve the control API; SANDBOX_CONTROL_URL and SANDBOX_CONTROL_TOKEN lead there")
	flags.BoolVar(&o.doctor, "doctor", false, "print what sandboxes can do on this machine, what is missing and the command that adds it, and exit")
	flags.StringVar(&o.state, "state", "", "keep sandboxes and snapshots in `DIR`")
	flags.StringVar(&o.token, "token", "", "accept `TOKEN` instead of one generated for this run")
	flags.BoolVar(&o.verbose, "v", false, "print each request in one line")
	flags.Usage = func() {
		fmt.Fprint(stderr, `usage: sandbox-emulator [flags] [COMMAND ARGS…]

  sandbox-emulator go test ./...    run a command against an emulator of its own
  sandbox-emulator                  serve until interrupted, and say how to use it

`)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch sandboxtest.Mode(o.mode) {
	case sandboxtest.Auto, sandboxtest.Namespace, sandboxtest.Folder:
	default:
		err := fmt.Errorf("unknown -mode %q, want namespace or folder", o.mode)
		fmt.Fprintln(stderr, "sandbox-emulator:", err)
		return nil, err
	}
	o.command = flags.Args()
	return &o, nil
}

// addPair returns the parser of a flag NAME=VALUE. It adds the pair to all.
func addPair(all map[string]string, what string) func(arg string) error {
	return func(arg string) error {
		name, value, ok := strings.Cut(arg, "=")
		switch {
		case !ok || name == "" || value == "":
			return errors.New("want NAME=" + what)
		case all[name] != "":
			return fmt.Errorf("%s is given twice", name)
		}
		all[name] = value
		return nil
	}
}

// config returns the server's options.
func (o *options) config(stderr io.Writer) *sandboxtest.Options {
	config := &sandboxtest.Options{
		Addr: o.addr, Mode: sandboxtest.Mode(o.mode), Dir: o.state, Token: o.token, Images: o.images, Names: o.names, Hosts: o.hosts, HomeFolders: o.homeFolders,
		RateLimits: o.rateLimits, Realistic: o.realistic, RefuseUnenforced: !o.unenforced,
		Logger: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if o.control {
		config.ControlToken = "ctl_" + rand.Text()
	}
	if o.verbose {
		config.OnRequest = requestPrinter(stderr)
	}
	return config
}

// run is the program. It returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	}
	// Catch signals before the server creates anything that has to be removed at the end.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	server, err := sandboxtest.NewServer(o.config(stderr))
	if err != nil {
		fmt.Fprintln(stderr, "sandbox-emulator:", err)
		return exitFailure
	}
	var code int
	if o.doctor {
		diagnose(server, stdout)
	} else if len(o.command) == 0 {
		code = serve(server, stdout, stderr, signals)
	} else {
		code = runCommand(server, o.command, stderr, signals)
	}
	if err := server.Close(); err != nil {
		fmt.Fprintln(stderr, "sandbox-emulator:", err)
		code = max(code, exitFailure)
	}
	return code
}

// diagnose prints what a server can enforce on this machine.
func diagnose(server *sandboxtest.Server, w io.Writer) {
	e := server.Enforces()
	fmt.Fprintf(w, "%s mode\n", server.Mode())
	for _, part := range []struct {
		name string
		real bool
	}{
		{"commands, files, snapshots, terminals, ports", true},
		{"files apart from this machine's", e.Files},
		{"sudo, users and groups", e.Users},
		{"network policies", e.Policies},
	} {
		answer := "yes"
		if !part.real {
			answer = "no"
		}
		fmt.Fprintf(w, "%-45s %s\n", part.name, answer)
	}
	if e.Missing != nil {
		fmt.Fprintf(w, "missing:\n%s\n", e.Missing)
	}
}

// requestPrinter returns a function that prints a request in one line.
func requestPrinter(w io.Writer) func(sandboxtest.Request) {
	var mu sync.Mutex
	return func(r sandboxtest.Request) {
		mu.Lock()
		defer mu.Unlock()
		what := cmp.Or(string(r.Operation), "unknown")
		fmt.Fprintf(w, "%s %3d %s %s (%s, %s)\n", r.Start.Format("15:04:05.000"), r.Status, r.Method, r.Path, what,
			r.Duration.Round(time.Microsecond))
	}
}

// serve prints how to use the server and waits for a signal.
func serve(server *sandboxtest.Server, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	files, err := writeHooks()
	if err != nil {
		fmt.Fprintln(stderr, "sandbox-emulator:", err)
		return exitFailure
	}
	fmt.Fprintf(stdout, "Serving the Sandbox API at %s (%s mode).\n", server.URL, server.Mode())
	fmt.Fprintf(stdout, "Sandboxes may use all of this machine's memory and processes.\n")
	if missing := server.Enforces().Missing; missing != nil {
		fmt.Fprintf(stdout, "Not as on the platform here: %s.\n", strings.ReplaceAll(missing.Error(), "\n", "; "))
	}
	fmt.Fprint(stdout, "\nPoint a program at it with:\n\n")
	printExports(stdout, server.Environ())
	fmt.Fprint(stdout, "\nPrograms in Node and Python, which have the platform's address built in, need these too:\n\n")
	printExports(stdout, files.clients(server, os.Environ()))
	fmt.Fprint(stdout, "\nInterrupt to stop.\n")
	<-signals
	if err := files.remove(); err != nil {
		fmt.Fprintln(stderr, "sandbox-emulator:", err)
		return exitFailure
	}
	return 0
}

// printExports prints variables in the syntax of a shell.
func printExports(w io.Writer, env []string) {
	for _, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		if strings.ContainsFunc(value, func(r rune) bool { return !strings.ContainsRune(unquoted, r) }) {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		fmt.Fprintf(w, "export %s=%s\n", key, value)
	}
}

// unquoted are the characters that need no quotes in a shell.
const unquoted = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%"

// runCommand runs a command whose environment points to the server.
func runCommand(server *sandboxtest.Server, command []string, stderr io.Writer, signals <-chan os.Signal) int {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	files, err := writeHooks()
	if err != nil {
		fmt.Fprintln(stderr, "sandbox-emulator:", err)
		return exitFailure
	}
	defer func() {
		if err := files.remove(); err != nil {
			fmt.Fprintln(stderr, "sandbox-emulator:", err)
		}
	}()
	cmd.Env = files.environment(server, os.Environ())
	if term.IsTerminal(int(os.Stderr.Fd())) { // go run prints nothing while it compiles: show that it is done
		fmt.Fprintf(stderr, "sandbox-emulator: serving %s (%s mode); running %s\n", server.URL, server.Mode(), strings.Join(command, " "))
	}
	// The thread that starts the command has to outlive it: a command that requests a
	// signal when its parent dies would get the signal when the thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, "sandbox-emulator:", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return exitNotFound
		}
		return exitNotRunnable
	}
	atTerminal := term.IsTerminal(int(os.Stdin.Fd()))
	ctx, stop := context.WithCancel(context.Background())
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		for {
			select {
			case sig := <-signals:
				if sig == os.Interrupt && atTerminal {
					continue // the terminal has also interrupted the command
				}
				_ = cmd.Process.Signal(sig) // it may have ended
			case <-ctx.Done():
				return
			}
		}
	})
	err = cmd.Wait()
	stop()
	forwarding.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exitCode(exit.ProcessState)
	}
	if err != nil {
		fmt.Fprintln(stderr, "sandbox-emulator:", err)
		return exitFailure
	}
	return 0
}

// exitCode returns the exit code that a shell would report: 128 + n after signal n.
func exitCode(state *os.ProcessState) int {
	if ws, ok := state.Sys().(interface {
		Signaled() bool
		Signal() syscall.Signal
	}); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}
