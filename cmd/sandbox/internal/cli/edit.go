package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

type editCommand struct{ app *app }

func (c *editCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "edit <name> <path>", Short: "Edit a file of a sandbox with $EDITOR", GroupID: groupFiles, Args: positionals("name", "path"), RunE: c.run,
	}
}

func (c *editCommand) run(cmd *cobra.Command, args []string) error {
	if !c.app.asks() {
		return usagef("an editor needs a terminal")
	}
	sb, at, err := c.app.fileOf(cmd.Context(), args)
	if err != nil {
		return err
	}
	return c.edit(cmd.Context(), sb.FS(), at.path)
}

// edit edits a copy of a file here and writes it back if it has changed.
func (c *editCommand) edit(ctx context.Context, files *sandbox.FileSystem, name string) error {
	dir, err := os.MkdirTemp("", "sandbox-edit-*")
	if err != nil {
		return err
	}
	keep := false
	defer func() {
		if !keep {
			os.RemoveAll(dir)
		}
	}()
	before, err := files.ReadFile(ctx, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mode := fs.FileMode(0o644)
	if i, err := files.Stat(ctx, name); err == nil {
		mode = i.Mode().Perm()
	}
	local := filepath.Join(dir, path.Base(name))
	if err := os.WriteFile(local, before, 0o600); err != nil {
		return err
	}
	editor := first(c.app.getenv("VISUAL"), c.app.getenv("EDITOR"), "vi")
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", local)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor %s: %w", editor, err)
	}
	after, err := os.ReadFile(local)
	if err != nil || string(after) == string(before) {
		return err
	}
	if err := files.WriteFile(ctx, name, after, mode); err != nil {
		keep = true
		return withHint(err, "what you have written is kept in %s", local)
	}
	return nil
}
