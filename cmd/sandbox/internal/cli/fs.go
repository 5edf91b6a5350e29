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
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
)

type fileView struct {
	Name    string     `json:"name"`
	Type    string     `json:"type"`
	Mode    string     `json:"mode"`
	Size    int64      `json:"size"`
	ModTime *time.Time `json:"modTime"`
}

func viewFile(name string, i fs.FileInfo) fileView {
	kind := "file"
	switch {
	case i.IsDir():
		kind = "directory"
	case i.Mode()&fs.ModeSymlink != 0:
		kind = "link"
	case !i.Mode().IsRegular():
		kind = "other"
	}
	return fileView{name, kind, i.Mode().String(), i.Size(), moment(i.ModTime())}
}

func (c *fsCommand) fileTable(views []fileView) *table.Table {
	t := table.New("MODE", "SIZE", "CHANGED", "NAME")
	for _, v := range views {
		t.Row(v.Mode, units.Bytes(v.Size), distance(v.ModTime, c.app.now()), v.Name)
	}
	return t
}

// fsAction does something to paths of one sandbox.
type fsAction func(ctx context.Context, files *sandbox.FileSystem, paths []string) error

// fsLeaf makes a command of fs whose arguments are NAME:PATH, of one sandbox.
func (c *fsCommand) fsLeaf(use, short string, do fsAction) *cobra.Command {
	names := mapped(argument.FindAllString(use, -1), func(name string) string { return strings.Trim(name, "<>") })
	cmd := &cobra.Command{Use: use, Short: short, Args: positionals(names...)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var name string
		var paths []string
		for i, s := range args {
			l, err := parseLocation(s)
			if err != nil {
				return err
			}
			if l.sandbox == "" && i > 0 {
				l.sandbox = name // mv web:a b
			}
			if l.sandbox == "" || i > 0 && l.sandbox != name {
				return usagef("%s is not a path of a sandbox, NAME:PATH", s)
			}
			name = l.sandbox
			paths = append(paths, l.path)
		}
		resolved, err := c.app.resolveName(name)
		if err != nil {
			return err
		}
		sb, err := c.app.get(cmd.Context(), resolved, true)
		if err != nil {
			return err
		}
		return do(cmd.Context(), sb.FS(), paths)
	}
	return cmd
}

type fsCommand struct{ app *app }

func (c *fsCommand) command() *cobra.Command {
	cmd := &cobra.Command{Use: "fs", Short: "Work with the files of a sandbox", GroupID: groupFiles}
	ls := c.fsLeaf("ls <name:path> [...path]", "List directories", c.fsList)
	cat := c.fsLeaf("cat <name:path> [...path]", "Write files to standard output", onEach(c.app.catFile))
	stat := c.fsLeaf("stat <name:path> [...path]", "Show files", c.fsStat)
	// tell writes the paths that something was done to.
	tell := func(do fsAction) fsAction {
		return func(ctx context.Context, files *sandbox.FileSystem, paths []string) error {
			if err := do(ctx, files, paths); err != nil {
				return err
			}
			return c.app.result(paths, paths...)
		}
	}
	mkdir := c.fsLeaf("mkdir <name:path> [...path]", "Make directories, and those that lead to them",
		tell(onEach(func(ctx context.Context, files *sandbox.FileSystem, p string) error {
			return files.MkdirAll(ctx, p, 0o755)
		})))
	var recursive, force bool
	rm := c.fsLeaf("rm <name:path> [...path]", "Remove files", tell(onEach(func(ctx context.Context, files *sandbox.FileSystem, p string) error {
		if recursive {
			return files.RemoveAll(ctx, p)
		}
		err := files.Remove(ctx, p)
		if force && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})))
	toggle(rm.Flags(), &recursive, "recursive", "r", "Remove directories with all that is in them")
	toggle(rm.Flags(), &force, "force", "f", "Ignore what does not exist")
	mv := c.fsLeaf("mv <name:from> <to>", "Rename a file", func(ctx context.Context, files *sandbox.FileSystem, paths []string) error {
		if err := files.Rename(ctx, paths[0], paths[1]); err != nil {
			return err
		}
		return c.app.result(paths[1:], paths[1])
	})
	var mode string
	chmod := c.fsLeaf("chmod <name:path> [...path]", "Change the permissions of files", tell(onEach(func(ctx context.Context, files *sandbox.FileSystem, p string) error {
		err := files.ChmodSymbolic(ctx, p, mode)
		if errors.Is(err, syscall.EINVAL) {
			return usagef("--mode: %q is not a mode such as 755 or u+x", mode)
		}
		return err
	})))
	option(chmod.Flags(), &mode, "mode", "m", "mode", "", "The permissions, such as 755 or u+x", parseText)
	chmod.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if mode == "" {
			return &usageError{message: "no value provided for --mode", hint: moreAbout(cmd)}
		}
		return nil
	}
	edit := c.fsLeaf("edit <name:path>", "Edit a file with $EDITOR", onEach(c.fsEdit))
	cmd.AddCommand(ls, cat, stat, mkdir, rm, mv, chmod, edit)
	return group(cmd)
}

// onEach does the same to one path after another.
func onEach(do func(context.Context, *sandbox.FileSystem, string) error) fsAction {
	return func(ctx context.Context, files *sandbox.FileSystem, paths []string) error {
		for _, p := range paths {
			if err := do(ctx, files, p); err != nil {
				return err
			}
		}
		return nil
	}
}

func (c *fsCommand) fsStat(ctx context.Context, files *sandbox.FileSystem, paths []string) error {
	var views []fileView
	for _, p := range paths {
		i, err := files.Lstat(ctx, p)
		if err != nil {
			return err
		}
		views = append(views, viewFile(p, i))
	}
	return c.app.print(list(views, func(v fileView) string { return v.Name }, c.fileTable))
}

func (c *fsCommand) fsList(ctx context.Context, files *sandbox.FileSystem, paths []string) error {
	var views []fileView
	for _, p := range paths {
		i, err := files.Stat(ctx, p)
		if err != nil {
			return err
		}
		if !i.IsDir() {
			views = append(views, viewFile(p, i))
			continue
		}
		entries, err := files.ReadDir(ctx, p)
		if err != nil {
			return err
		}
		for _, e := range entries {
			i, err := e.Info()
			if err != nil {
				return err
			}
			name := e.Name()
			if len(paths) > 1 {
				name = path.Join(p, name)
			}
			views = append(views, viewFile(name, i))
		}
	}
	return c.app.print(list(views, func(v fileView) string { return v.Name }, c.fileTable))
}

// fsEdit edits a copy of a file here and writes it back if it has changed.
func (c *fsCommand) fsEdit(ctx context.Context, files *sandbox.FileSystem, name string) error {
	if !c.app.asks() {
		return usagef("an editor needs a terminal")
	}
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
