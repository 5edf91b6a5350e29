// Runner runs a command on the files of an archive in a sandbox, as a CI runner
// does. The tag "runner" names the owner of a sandbox.
//
// Sandboxes with another owner are left alone. list, cleanup and doctor start no
// machine and create no project.
//
//	git archive -o src.tgz HEAD
//	go run ./examples/runner -name ci -keep -archive src.tgz run make
//	go run ./examples/runner -name ci run make test # resumes it, and then deletes it
//	go run ./examples/runner list                   # or cleanup, doctor
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/outputs"
)

var (
	owner   = flag.String("owner", "example", "the owner of the sandboxes")
	name    = flag.String("name", "", "the `name` of a sandbox to create or resume")
	archive = flag.String("archive", "", "a .tgz `file` for the command to work on; without it, the sandbox's files")
	keep    = flag.Bool("keep", false, "stop the sandbox and keep its files, instead of deleting it")
	timeout = flag.Duration("timeout", 20*time.Minute, "how long the command may run")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	verb, code := flag.Arg(0), 0
	client, err := sandbox.NewClient(&sandbox.ClientOptions{Credentials: auth.Default(&auth.Options{NoCreate: verb != "run"})})
	switch {
	case err != nil:
	case verb == "run" && flag.NArg() > 1:
		code, err = run(ctx, client, flag.Args()[1:])
	case verb == "list", verb == "cleanup":
		err = listOrDelete(ctx, client, verb == "cleanup")
	case verb == "doctor": // changes nothing
		_, err = client.ListPage(ctx, &sandbox.ListOptions{Limit: 1})
	default:
		err = errors.New("say run COMMAND, list, cleanup or doctor")
	}
	stop()
	if err != nil {
		code = explain(err)
	}
	os.Exit(code)
}

// run returns the exit code of the command.
func run(ctx context.Context, client *sandbox.Client, command []string) (code int, err error) {
	sb, err := find(ctx, client, *name) // the next call starts it if it is stopped
	if *name == "" || errors.Is(err, sandbox.ErrNotFound) {
		sb, err = client.Create(ctx, &sandbox.CreateOptions{Name: *name, Tags: map[string]string{"runner": *owner}, Timeout: *timeout + 5*time.Minute})
	}
	if err != nil {
		return 0, err
	}
	defer func() { // also after Ctrl-C
		if ctx := context.WithoutCancel(ctx); *keep {
			_, stopErr := sb.Stop(ctx, nil)
			err = errors.Join(err, stopErr)
		} else {
			err = errors.Join(err, sb.Delete(ctx, nil))
		}
	}()
	if *archive != "" {
		if err := upload(ctx, sb); err != nil {
			return 0, err
		}
	}
	kept := &outputs.HeadTail{Max: 1 << 10} // for the message below
	done, err := sb.RunCommand(ctx, command[0], command[1:], &sandbox.CommandOptions{
		Cwd: sb.Cwd() + "/work", Timeout: *timeout, KillOnCancel: true, Stdout: os.Stdout, Stderr: io.MultiWriter(os.Stderr, kept),
	})
	if err != nil {
		return 0, err
	}
	if done.ExitCode != 0 {
		fmt.Fprintf(os.Stderr, "runner: %s: exit code %d after %q\n", command[0], done.ExitCode, kept)
	}
	return done.ExitCode, nil
}

// find returns the owner's sandbox of this name. It starts no machine.
func find(ctx context.Context, client *sandbox.Client, name string) (*sandbox.Sandbox, error) {
	sb, err := client.Get(ctx, name, &sandbox.GetOptions{NoResume: true})
	if err == nil && sb.Info().Tags["runner"] != *owner {
		err = fmt.Errorf("sandbox %s is not owned by %s", name, *owner)
	}
	return sb, err
}

// upload replaces the files by those of the archive. It streams the archive.
func upload(ctx context.Context, sb *sandbox.Sandbox) error {
	f, err := os.Open(*archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := sb.WriteFiles(ctx, []sandbox.File{{Path: "work.tgz", Reader: f}}, nil); err != nil {
		return err
	}
	unpack := sb.CommandContext(ctx, "sh", "-ec", "rm -rf work; mkdir work; tar -xzf work.tgz -C work; rm work.tgz")
	unpack.Stderr = os.Stderr
	return unpack.Run()
}

// listOrDelete lists the owner's sandboxes, and deletes them if remove is set.
func listOrDelete(ctx context.Context, client *sandbox.Client, remove bool) error {
	for info, err := range client.List(ctx, &sandbox.ListOptions{Tags: map[string]string{"runner": *owner}}) {
		if err == nil && remove {
			var sb *sandbox.Sandbox
			if sb, err = find(ctx, client, info.Name); err == nil {
				err = sb.Delete(ctx, nil) // deletes only this sandbox, not a newer one with its name
			}
		}
		if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			return err
		}
		fmt.Println(info.Name, info.Status)
	}
	return nil
}

// explain prints what to do about an error and returns the exit code.
func explain(err error) int {
	code, advice := 64, "The request can't be carried out."
	switch _, incomplete := errors.AsType[*auth.MissingError](err); {
	case incomplete, errors.Is(err, auth.ErrNoCredentials), errors.Is(err, auth.ErrNoProject), errors.Is(err, sandbox.ErrUnauthorized):
		code, advice = 77, "Log in by `vercel login` and `vercel link`, or set VERCEL_TOKEN."
	case errors.Is(err, sandbox.ErrRateLimited), errors.Is(err, sandbox.ErrUnavailable), errors.Is(err, sandbox.ErrOutcomeUnknown):
		code, advice = 75, "Look at what there is with list, and try again later."
	case errors.Is(err, context.Canceled):
		code, advice = 130, "The command was killed."
	case errors.Is(err, sandbox.ErrQuotaExceeded):
		code, advice = 69, "The plan's usage is exhausted."
	}
	fmt.Fprintf(os.Stderr, "runner: %v\n%s\n", err, advice)
	return code
}
