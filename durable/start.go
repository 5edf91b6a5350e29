package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/go-vercel/sandbox"
)

type startInput struct {
	Sandbox, VM, EnvFrom, Name string
	Args                       []string
	Options                    RunOptions
	// Shared says that other calls may have the same key.
	Shared bool `json:",omitempty"`
}

type started struct {
	ID     string
	Handle json.RawMessage
	// Refused: the machine had ended before anything was sent.
	Refused bool `json:",omitempty"`
	// Lost: the machine has ended, and an earlier attempt may have started the
	// command in it.
	Lost bool `json:",omitempty"`
}

// guard lets one start of a key win in a machine: directories are made by one
// alone. It ends with taken for all others, and becomes the command for the
// winner. What it is given is the key within the machine, since the directories
// are in snapshots too.
const (
	guard = `mkdir -p "/tmp/.durable/${0%/*}" && mkdir "/tmp/.durable/$0" 2>/dev/null || exit 125; exec "$@"`
	taken = 125
)

func within(vm, key string) string { return vm + "/" + key }

var validKey = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// start starts the command of a key at most once. An attempt after the first
// looks for it before it sends anything, and should an earlier request arrive
// after that, the guard lets one of the two win.
func (w *Worker) start(ctx context.Context, in startInput) (started, error) {
	ctx, stop := alive(ctx)
	defer stop()
	key := in.Options.Key
	if !validKey.MatchString(key) || key == "." || key == ".." {
		return started{}, classify(fmt.Errorf("%w: the key %q has characters that no key may have", sandbox.ErrInvalid, key))
	}
	first := activity.GetInfo(ctx).Attempt == 1
	ended := func() (started, error) { return started{Refused: first, Lost: !first}, nil }
	vm, err := w.session(ctx, in.Sandbox, in.VM)
	if gone(err) {
		return ended()
	}
	if err != nil {
		return started{}, classify(err)
	}
	if !first || in.Shared {
		cmd, err := find(ctx, vm, key)
		if gone(err) {
			return ended()
		}
		if err != nil {
			return started{}, classify(err)
		}
		if cmd != nil {
			return handle(cmd)
		}
	}
	opts := &sandbox.CommandOptions{Cwd: in.Options.Cwd, Sudo: in.Options.Sudo, Timeout: in.Options.Timeout}
	if in.EnvFrom != "" {
		if w.Env == nil {
			return started{}, classify(fmt.Errorf("%w: EnvFrom is %q, but the Worker has no Env", sandbox.ErrInvalid, in.EnvFrom))
		}
		if opts.Env, err = w.Env(ctx, in.EnvFrom); err != nil {
			return started{}, classify(err)
		}
	}
	cmd, err := vm.StartCommand(ctx, "sh", append([]string{"-c", guard, within(in.VM, key), in.Name}, in.Args...), opts)
	switch {
	case err == nil:
		return handle(cmd)
	case errors.Is(err, sandbox.ErrOutcomeUnknown):
		// The next attempt looks, and the guard holds.
		return started{}, classify(errors.New(err.Error()))
	case gone(err):
		return ended()
	}
	return started{}, classify(err)
}

func handle(cmd *sandbox.Command) (started, error) {
	data, err := json.Marshal(cmd)
	return started{ID: cmd.ID(), Handle: data}, err
}

// find looks for the command of a key in a session: the one start that won, or
// may still win.
func find(ctx context.Context, vm *sandbox.Session, key string) (*sandbox.Command, error) {
	cmds, err := vm.ListCommands(ctx)
	if err != nil {
		return nil, err
	}
	cmds = slices.DeleteFunc(cmds, func(c *sandbox.Command) bool {
		args := c.Args()
		return len(args) < 4 || !slices.Equal(args[:3], []string{"-c", guard, within(vm.ID(), key)})
	})
	switch len(cmds) {
	case 0:
		return nil, nil
	case 1:
		return cmds[0], nil
	}
	// A loser ends at once. Its end shows only when it is waited for.
	for _, cmd := range cmds {
		wait, cancel := context.WithTimeout(ctx, loserEnds)
		done, err := cmd.Wait(wait)
		cancel()
		switch {
		case err == nil && done.ExitCode != taken:
			return cmd, nil
		case err == nil:
		case ctx.Err() != nil || wait.Err() == nil:
			return nil, err
		default:
			return cmd, nil // it runs
		}
	}
	return nil, nil
}

// loserEnds is within what time a command that lost has ended.
const loserEnds = 5 * time.Second
