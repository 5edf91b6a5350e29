package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
)

type copyCommand struct {
	place

	o       copyOptions
	ignored bool
}

func (c *copyCommand) command() *command {
	return &command{
		name: "copy", aliases: []string{"cp"}, near: []string{"upload", "download", "push", "pull", "put", "scp"}, first: true, short: "Copy files and directories to, from and between sandboxes",
		long: "Copy files and directories to, from and between sandboxes. A path in a sandbox is NAME:PATH; - is standard input or output, to which a directory goes as a tar archive. " +
			"As with cp, something is copied into a directory that exists, or that ends in a slash; DIR/. is what is in a directory. " +
			"Several sources may be given. Modes, times and symbolic links are kept.",
		args: []argument{
			{name: "src", text: "What to copy: a path here, or NAME:PATH in a sandbox", sandbox: ":"},
			{name: "dst", text: "Where to: a path here, or NAME:PATH in a sandbox", sandbox: ":"},
		},
		check: func(cmd *cobra.Command, args []string) error {
			names := []string{"src", "dst"}
			if len(args) < 2 {
				return &usageError{message: "no value provided for " + names[len(args)], hint: moreAbout(cmd)}
			}
			return nil
		},
		options: c.define, example: "cp my-app:build ./out", doc: []copyView{}, run: c.run,
	}
}

func (c *copyCommand) define(flags *pflag.FlagSet) {
	toggle(flags, &c.ignored, "recursive", "r", "Has no effect: directories are always copied")
	toggle(flags, &c.ignored, "Recursive", "R", "The same, as in cp(1)")
	flags.Lookup("Recursive").Hidden = true
	flags.BoolVarP(&c.ignored, "archive", "a", false, "Has no effect: modes, times and links are always kept")
	toggle(flags, &c.o.follow, "follow-symlinks", "L", "Copy what symbolic links lead to (uploads)")
	options(flags, &c.o.exclude, "exclude", "", "pattern", "Leave out what matches, such as node_modules or **/*.log (repeatable)", parseText)
	options(flags, &c.o.include, "include", "", "pattern", "Copy only what matches (repeatable)", parseText)
	toggle(flags, &c.o.outsideLinks, "outside-links", "", "Keep symbolic links that lead out of the directory")
	toggle(flags, &c.o.dotGit, "dot-git", "", "Download into a working tree also what acts there by itself: .git, .hg, HEAD of a repository, .vscode and the like")
	toggle(flags, &c.o.mkdir, "mkdir", "", "Make the local directories that lead to the destination")
	toggle(flags, &c.o.noClobber, "no-clobber", "n", "Leave files that exist as they are")
	toggle(flags, &c.o.progress, "progress", "", "Show the progress even if standard error is not a terminal")
	toggle(flags, &c.o.noProgress, "no-progress", "", "Never show the progress")
}

func (c *copyCommand) run(cmd *cobra.Command, args []string) error {
	return c.copy(cmd.Context(), args[:len(args)-1], args[len(args)-1], &c.o)
}

// copy copies sources to a destination.
func (c *copyCommand) copy(ctx context.Context, sources []string, destination string, o *copyOptions) error {
	to, err := parseLocation(destination)
	if err != nil {
		return err
	}
	var from []location
	for _, s := range sources {
		l, err := parseLocation(s)
		if err != nil {
			return err
		}
		if l.sandbox == "" && to.sandbox == "" {
			return withHint(usagef("neither %s nor %s is in a sandbox", s, destination), "a path in a sandbox is NAME:PATH")
		}
		if l.sandbox == "" && !l.stream {
			if _, err := os.Stat(l.path); err != nil {
				return noSource(l.path, err)
			}
		}
		if l.stream && len(sources) > 1 {
			return usagef("standard input can't be one of several sources")
		}
		from = append(from, l)
	}
	if from[0].stream {
		if err := to.namesFile(); err != nil {
			return err
		}
	}
	if to.stream && len(from) > 1 {
		return usagef("several sources can't be copied to standard output")
	}
	boxes := map[string]*sandbox.Sandbox{}
	for _, l := range append([]location{to}, from...) {
		if l.sandbox == "" || boxes[l.sandbox] != nil {
			continue
		}
		name, err := c.account.checkedName(l.sandbox)
		if err != nil {
			return err
		}
		if boxes[l.sandbox], err = c.account.get(ctx, name, false); err != nil {
			return err
		}
	}
	copies := []copyView{}
	for _, f := range from {
		one := &copying{screen: c.screen, o: o, from: f, to: to, several: len(from) > 1, source: boxes[f.sandbox], target: boxes[to.sandbox]}
		if err := one.run(ctx); err != nil {
			return err
		}
		copies = append(copies, copyView{f.String(), to.String()})
		if !to.stream && !c.screen.opts.structured() {
			fmt.Fprintf(c.screen.err, "%s Copied %s to %s successfully!\n", c.screen.err.Paint(console.Green, "✔"), lines(f.String()), lines(to.String()))
		}
	}
	if to.stream {
		return nil // which has the file
	}
	return c.screen.result(copies)
}
