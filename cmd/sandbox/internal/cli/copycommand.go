package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/files"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type copyCommand struct {
	deps

	o       files.CopyOptions
	ignored bool
}

func (c *copyCommand) command() *line.Command {
	return &line.Command{
		Name: "copy", Aliases: []string{"cp"}, Near: []string{"upload", "download", "push", "pull", "put", "scp"}, First: true, Short: "Copy files and directories to, from and between sandboxes",
		Long: "Copy files and directories to, from and between sandboxes. A path in a sandbox is NAME:PATH. - is standard input or output; a directory is written there as a tar archive. " +
			"As with cp, a destination that is a directory, or ends in a slash, gets the copy inside it, and DIR/. means the contents of a directory. " +
			"There can be several sources. Modes, times and symbolic links are kept.",
		Args: []line.Argument{
			{Name: "src", Text: "What to copy: a local path, or NAME:PATH in a sandbox", Sandbox: ":"},
			{Name: "dst", Text: "Where to copy it: a local path, or NAME:PATH in a sandbox", Sandbox: ":"},
		},
		Check: func(cmd *cobra.Command, args []string) error {
			names := []string{"src", "dst"}
			if len(args) < 2 {
				return &line.UsageError{Message: "no value provided for " + names[len(args)], Hint: line.MoreAbout(cmd)}
			}
			return nil
		},
		Options: c.define, Example: "cp my-app:build ./out", Doc: []copyView{}, Run: c.run,
	}
}

func (c *copyCommand) define(flags *pflag.FlagSet) {
	line.Toggle(flags, &c.ignored, "recursive", "r", "Has no effect: directories are always copied")
	line.Toggle(flags, &c.ignored, "Recursive", "R", "The same, as in cp(1)")
	flags.Lookup("Recursive").Hidden = true
	flags.BoolVarP(&c.ignored, "archive", "a", false, "Has no effect: modes, times and links are always kept")
	line.Toggle(flags, &c.o.Follow, "follow-symlinks", "L", "In uploads, copy the targets of symbolic links")
	line.Options(flags, &c.o.Exclude, "exclude", "", "pattern", "Leave out files that match, such as node_modules or **/*.log (repeatable)", line.ParseText)
	line.Options(flags, &c.o.Include, "include", "", "pattern", "Copy only files that match (repeatable)", line.ParseText)
	line.Toggle(flags, &c.o.OutsideLinks, "outside-links", "", "Keep symbolic links that lead out of the directory")
	line.Toggle(flags, &c.o.DotGit, "dot-git", "", "Download into a working tree also what Git, Mercurial or an editor would run there: .git, .hg, HEAD of a repository, .vscode and the like")
	line.Toggle(flags, &c.o.Mkdir, "mkdir", "", "Create the local parent directories of the destination")
	line.Toggle(flags, &c.o.NoClobber, "no-clobber", "n", "Don't overwrite existing files")
	line.Toggle(flags, &c.o.Progress, "progress", "", "Show the progress even if standard error is not a terminal")
	line.Toggle(flags, &c.o.NoProgress, "no-progress", "", "Never show the progress")
}

func (c *copyCommand) run(cmd *cobra.Command, args []string) error {
	ctx, sources, destination := cmd.Context(), args[:len(args)-1], args[len(args)-1]
	to, err := files.ParseLocation(destination)
	if err != nil {
		return err
	}
	var from []files.Location
	for _, s := range sources {
		l, err := files.ParseLocation(s)
		if err != nil {
			return err
		}
		if l.Sandbox == "" && to.Sandbox == "" {
			return screen.WithHint(line.Usagef("neither %s nor %s is in a sandbox", s, destination), "a path in a sandbox is NAME:PATH")
		}
		if l.Sandbox == "" && !l.Stream {
			if _, err := os.Stat(l.Path); err != nil {
				return files.NoSource(l.Path, err)
			}
		}
		if l.Stream && len(sources) > 1 {
			return line.Usagef("standard input can't be one of several sources")
		}
		from = append(from, l)
	}
	if from[0].Stream {
		if err := to.NamesFile(); err != nil {
			return err
		}
	}
	if to.Stream && len(from) > 1 {
		return line.Usagef("several sources can't be copied to standard output")
	}
	sandboxes := map[string]*sandbox.Sandbox{}
	for _, l := range append([]files.Location{to}, from...) {
		if l.Sandbox == "" || sandboxes[l.Sandbox] != nil {
			continue
		}
		sb, err := c.account.Named(ctx, l.Sandbox, false)
		if err != nil {
			return err
		}
		sandboxes[l.Sandbox] = sb
	}
	copies := []copyView{}
	for _, f := range from {
		one := &files.Copy{Screen: c.screen, O: &c.o, From: f, To: to, Several: len(from) > 1, Source: sandboxes[f.Sandbox], Target: sandboxes[to.Sandbox]}
		if err := one.Run(ctx); err != nil {
			return err
		}
		copies = append(copies, copyView{f.String(), to.String()})
		if !to.Stream && !c.screen.Opts.Structured() {
			fmt.Fprintf(c.screen.Err, "%s Copied %s to %s successfully!\n", c.screen.Err.Paint(console.Green, "✔"), screen.Lines(f.String()), screen.Lines(to.String()))
		}
	}
	if to.Stream {
		return nil // standard output contains the file
	}
	return c.screen.Result(copies)
}
