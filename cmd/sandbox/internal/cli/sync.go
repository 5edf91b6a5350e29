package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/mirror"
)

type syncCommand struct {
	app *app

	o             mirror.Options
	watch, noKeep bool
	bar           bar      // of the copying that goes on
	leftOut       []string // that was told of
	outside       []string // as well
}

func (c *syncCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sync <src> <dst>", Short: "Make a directory like another, copying only what has changed", GroupID: groupFiles,
		Args: positionals("src", "dst"),
		Long: "Make a directory of a sandbox like one here, or the other way round, copying only files whose size, time or mode differ. " +
			"What the local directory's .gitignore and .sandboxignore files and .git/info/exclude name is left alone on both sides, and so is .git in every directory. Of what comes from a sandbox, what Git or an editor would run by itself is left out, and named: HEAD of a repository, .vscode and the like. " +
			"Git's own list of the user (core.excludesFile) is not read. A .gitignore that comes from the sandbox counts from the next time on.",
		Example: "  $ sandbox sync --watch --delete . web:app",
	}
	flags := cmd.Flags()
	toggle(flags, &c.watch, "watch", "w", "Repeat whenever something changes, and keep the sandbox running")
	toggle(flags, &c.noKeep, "no-extend-timeout", "", "With --watch: don't extend the sandbox's timeout")
	toggle(flags, &c.o.Delete, "delete", "", "Delete what the source does not have")
	toggle(flags, &c.o.OutsideLinks, "outside-links", "", "Keep symbolic links of the sandbox that lead out of the directory")
	toggle(flags, &c.o.DryRun, "dry-run", "", "Show what would be done")
	options(flags, &c.o.Exclude, "exclude", "", "pattern", "Leave out what matches (repeatable)", parseText)
	cmd.RunE = c.run
	return cmd
}

func (c *syncCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	from, to, err := c.locations(args)
	if err != nil {
		return err
	}
	upward, there, here := to.sandbox != "", from, to.path
	if upward {
		there, here = to, from.path
	}
	name, err := c.app.checkedName(there.sandbox)
	if err != nil {
		return err
	}
	sb, err := c.app.get(ctx, name, true)
	if err != nil {
		return err
	}
	c.o.Progress = c.progress
	if c.watch && !c.o.DryRun {
		if !c.noKeep {
			defer c.app.keepAlive(ctx, sb, 0, "the watch ends with the session")()
		}
		return c.keepSynced(ctx, sb, there.path, here, upward)
	}
	var changes mirror.Changes
	if upward {
		changes, err = mirror.Upload(ctx, sb, here, there.path, &c.o)
	} else {
		changes, err = mirror.Download(ctx, sb, there.path, here, &c.o)
	}
	c.copied()
	if _, complete := errors.AsType[*sandbox.ChangedError](err); err != nil && !complete {
		return advised(err)
	}
	if c.o.DryRun {
		return c.show(changes)
	}
	c.tell(changes)
	return err
}

// locations reads the two directories, one of which is in a sandbox.
func (c *syncCommand) locations(args []string) (from, to location, err error) {
	if from, err = parseLocation(args[0]); err != nil {
		return from, to, err
	}
	if to, err = parseLocation(args[1]); err != nil {
		return from, to, err
	}
	if (from.sandbox == "") == (to.sandbox == "") || from.stream || to.stream {
		return from, to, usagef("one of the two must be a directory in a sandbox, NAME:DIR, and the other a local one")
	}
	if from.sandbox == "" && !isLocalDir(from.path) {
		return from, to, usagef("%s is not a directory", from.path)
	}
	return from, to, nil
}

// keepSynced syncs again and again, and says what was done.
func (c *syncCommand) keepSynced(ctx context.Context, sb *sandbox.Sandbox, there, here string, upward bool) error {
	begun, said := false, ""
	c.o.OnSync = func(changes mirror.Changes, err error) {
		c.copied()
		if err == nil {
			said = ""
			c.tell(changes)
		} else if text := c.app.explain(advised(err)).Message; text != said {
			said = text
			if _, complete := errors.AsType[*sandbox.ChangedError](err); !complete {
				text = "this sync failed: " + text
			}
			c.app.warn(text, "trying again")
		}
		if upward && !begun {
			fmt.Fprintf(c.app.err, "Watching %s.\n", here)
		}
		begun = true
	}
	watch := func() error { return mirror.WatchDownload(ctx, sb, there, here, &c.o) }
	if upward {
		watch = func() error { return mirror.WatchUpload(ctx, sb, here, there, &c.o) }
	}
	err := watch()
	c.copied()
	return advised(err)
}

// progress shows how far the copying has come, and copied that it has ended.
func (c *syncCommand) progress(p sandbox.Progress) {
	if c.bar.done == nil {
		c.bar = c.app.bar("", &copyOptions{}, -1)
	}
	if c.bar.update != nil {
		c.bar.update(p)
	}
}

func (c *syncCommand) copied() {
	if c.bar.done != nil {
		c.bar.done()
	}
	c.bar = bar{}
}

// advised adds what this program can do about an error.
func advised(err error) error {
	if errors.Is(err, mirror.ErrInTheWay) {
		return withHint(err, "--delete replaces it")
	}
	return err
}

// keepAlive extends the sandbox's timeout until the returned function is called.
func (a *app) keepAlive(ctx context.Context, sb *sandbox.Sandbox, margin time.Duration, otherwise string) (stop func()) {
	return keepAlive(ctx, sb, margin, func(err error) {
		a.warn("the sandbox's timeout can't be extended any further: "+err.Error(), otherwise)
	})
}

// keepAlive is [sandbox.Sandbox.KeepAlive] until the returned function is called,
// and failed once it can't go on.
func keepAlive(ctx context.Context, sb *sandbox.Sandbox, margin time.Duration, failed func(error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := sb.KeepAlive(ctx, &sandbox.KeepAliveOptions{Margin: margin, Step: keepAliveStep}); err != nil && ctx.Err() == nil {
			failed(err)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
