package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type removeCommand struct {
	deps

	sel     selection
	orphans bool
	force   bool
}

func (c *removeCommand) command() *line.Command {
	return &line.Command{
		Name: "remove", Aliases: []string{"rm"}, Near: []string{"delete", "del", "destroy", "terminate"}, First: true, Short: "Remove sandboxes for good",
		Long: "Remove sandboxes for good, by name or by property. Their snapshots remain, except with --delete-orphan-snapshots.",
		Args: []line.Argument{line.NameArg, line.MoreNames}, Check: cobra.ArbitraryArgs, Options: c.define, Example: "rm my-app", Doc: []string{}, Run: c.run,
	}
}

func (c *removeCommand) define(flags *pflag.FlagSet) {
	line.Toggle(flags, &c.orphans, "delete-orphan-snapshots", "", "Also delete snapshots of the sandbox that no other sandbox uses")
	c.sel.define(flags)
	line.Toggle(flags, &c.force, "force", "f", "Ignore sandboxes that do not exist, and ask no questions")
}

func (c *removeCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	names, found, err := c.chosenNames(ctx, cmd, args, &c.sel)
	if err != nil {
		return err
	}
	if c.sel.given() && len(names) > 0 && !c.force {
		if err := c.screen.Confirm(ctx, fmt.Sprintf("Remove %s for good: %s?", line.Plural(len(names), "sandbox", "sandboxes"), strings.Join(names, ", "))); err != nil {
			return err
		}
	}
	if c.sel.given() {
		return c.removeFound(ctx, names, found)
	}
	if _, err := c.account.Connect(ctx); err != nil {
		return err
	}
	return c.runTasks(names, "Removing sandbox ", func(name string) error {
		sb, err := c.account.Get(ctx, name, false)
		if err == nil {
			err = sb.Delete(ctx, &sandbox.DeleteOptions{DeleteOrphanSnapshots: c.orphans})
		}
		if c.force && errors.Is(err, sandbox.ErrNotFound) {
			return errNothingToDo
		}
		return err
	})
}

// errInUse is the error for a sandbox that removeFound does not remove.
var errInUse = &screen.ExitError{Code: screen.ExitConflict, Err: errors.New("it was used after it was found, so it was not removed")}

// sameSandbox reports whether now is the same sandbox as found, in the same session.
func sameSandbox(found, now sandbox.Info) bool {
	return found.Name == now.Name && found.CreatedAt.Equal(now.CreatedAt) && found.CurrentSessionID == now.CurrentSessionID
}

// removeFound removes the sandboxes that a selection has found. If a sandbox no longer
// matches, or was started in the meantime, removeFound does not remove it, and returns an
// error.
func (c *removeCommand) removeFound(ctx context.Context, names []string, found []sandbox.Info) error {
	match := c.sel.matcher(c.resolvePairs(c.sel.tags, "--tag"))
	return c.runTasks(names, "Removing sandbox ", func(name string) error {
		sb, err := c.account.Get(ctx, name, false)
		if err != nil {
			return err
		}
		if now := sb.Info(); !sameSandbox(found[slices.Index(names, name)], now) || !match(now) {
			return errInUse
		}
		return sb.Delete(ctx, &sandbox.DeleteOptions{DeleteOrphanSnapshots: c.orphans})
	})
}
