package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/files"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type readCommand struct{ deps }

func (c *readCommand) command() *line.Command {
	return &line.Command{
		Name: "read", Aliases: []string{"cat"}, Title: titleFiles, Short: "Write a file of a sandbox to standard output",
		Args: []line.Argument{line.NameArg, {Name: "path", Text: "The file in the sandbox"}}, Example: "read my-app config.json", Run: c.run,
	}
}

func (c *readCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	sb, from, err := c.sandboxAndFile(ctx, args)
	if err != nil {
		return err
	}
	if err := catFile(ctx, c.screen, sb.FS(), from.Path); err != nil {
		return (&files.Copy{From: from}).Missing(err)
	}
	return nil
}

type writeCommand struct{ deps }

func (c *writeCommand) command() *line.Command {
	return &line.Command{
		Name: "write", Title: titleFiles, Short: "Write standard input to a file of a sandbox",
		Args: []line.Argument{line.NameArg, {Name: "path", Text: "The file in the sandbox"}}, Example: "write my-app config.json", Doc: []copyView{}, Run: c.run,
	}
}

func (c *writeCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	if err := (files.Location{Path: args[1]}).NamesFile(); err != nil {
		return err
	}
	sb, to, err := c.sandboxAndFile(ctx, args)
	if err != nil {
		return err
	}
	one := &files.Copy{Screen: c.screen, O: &files.CopyOptions{}, From: files.Location{Stream: true}, To: to, Target: sb}
	if err := one.Run(ctx); err != nil {
		return err
	}
	return c.screen.Result([]copyView{{one.From.String(), to.String()}})
}

// sandboxAndFile returns the sandbox and the location of the arguments NAME PATH.
func (p *deps) sandboxAndFile(ctx context.Context, args []string) (*sandbox.Sandbox, files.Location, error) {
	sb, err := p.account.Named(ctx, args[0], false)
	return sb, files.Location{Sandbox: args[0], Path: args[1]}, err
}

// catFile writes a file of a sandbox to standard output.
func catFile(ctx context.Context, s *screen.Screen, fsys *sandbox.FileSystem, name string) error {
	r, err := files.OpenRemote(ctx, fsys, name)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(s.Out.Raw, r)
	return err
}
