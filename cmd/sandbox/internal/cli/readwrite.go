package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

type readCommand struct{ place }

func (c *readCommand) command() *command {
	return &command{
		name: "read", aliases: []string{"cat"}, title: titleFiles, short: "Write a file of a sandbox to standard output",
		args: []argument{nameArg, {name: "path", text: "The file in the sandbox"}}, example: "read my-app config.json", run: c.run,
	}
}

func (c *readCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	sb, from, err := c.fileOf(ctx, args)
	if err != nil {
		return err
	}
	if err := catFile(ctx, c.screen, sb.FS(), from.path); err != nil {
		return (&copying{from: from}).missing(err)
	}
	return nil
}

type writeCommand struct{ place }

func (c *writeCommand) command() *command {
	return &command{
		name: "write", title: titleFiles, short: "Write standard input to a file of a sandbox",
		args: []argument{nameArg, {name: "path", text: "The file in the sandbox"}}, example: "write my-app config.json", doc: []copyView{}, run: c.run,
	}
}

func (c *writeCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	if err := (location{path: args[1]}).namesFile(); err != nil {
		return err
	}
	sb, to, err := c.fileOf(ctx, args)
	if err != nil {
		return err
	}
	one := &copying{screen: c.screen, o: &copyOptions{}, from: location{stream: true}, to: to, target: sb}
	if err := one.run(ctx); err != nil {
		return err
	}
	return c.screen.result([]copyView{{one.from.String(), to.String()}})
}

// fileOf finds the sandbox of a command line NAME PATH.
func (p *place) fileOf(ctx context.Context, args []string) (*sandbox.Sandbox, location, error) {
	name, err := p.account.checkedName(args[0])
	if err != nil {
		return nil, location{}, err
	}
	sb, err := p.account.get(ctx, name, false)
	return sb, location{sandbox: name, path: args[1]}, err
}

// catFile writes a file of a sandbox to standard output.
func catFile(ctx context.Context, s *stdio, files *sandbox.FileSystem, name string) error {
	r, err := openRemote(ctx, files, name)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(s.out.Raw, r)
	return err
}
