package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox"
)

func fileTools() []*tool {
	return []*tool{
		newTool("read_file", "Read lines of a text file, with their numbers", readFile).asReadOnly().asQuick(),
		newTool("write_file", "Write a text file and create its parent directories. An existing file is replaced and keeps its mode.", writeFile).asDestructive().asQuick(),
		newTool("edit_file", "Replace a piece of a file. old_string must be there exactly once, unless replace_all is set: "+
			"give enough of the lines around it, without line numbers. The file keeps its line ends, unless you give \\r.", editFile).asDestructive().asQuick(),
		newTool("list_files", "List a directory", listFiles).asReadOnly().asQuick(),
		newTool("glob", "Find files by a pattern such as *.go or src/**/*.ts; .git is left out", globFiles).asReadOnly().asQuick(),
		newTool("grep", "Find lines that a regular expression (RE2) matches, in all files below a directory, or in one file; "+
			".git, binary files and files of more than 4 MiB are left out", grepFiles).asReadOnly().asQuick(),
		newTool("save_artifact", "Copy a file of the sandbox to the user's folder of artifacts", saveArtifact).asDestructive().asQuick(),
		newTool("load_artifact", "Copy a file from the user's folder of artifacts to the sandbox", loadArtifact).asDestructive().asQuick(),
	}
}

// processPaths matches paths in /proc that lead to a different file in each process. No policy
// can decide about such a path.
var processPaths = regexp.MustCompile(`^/proc/[^/]+/(task/[^/]+/)?(cwd|root|fd|map_files)(/|$)`)

// resolvePath returns the absolute path of a file, if the options allow it.
func (c *call) resolvePath(ctx context.Context, l location) (string, error) {
	name := l.abs
	if name == "" || strings.ContainsRune(name, 0) {
		return "", modelErrorf("A path is needed, without NUL.")
	}
	if processPaths.MatchString(path.Clean(name)) {
		return "", modelErrorf("%s leads to a different file in each process: give the file's own path.", oneLine(name))
	}
	if len(c.t.opts.Paths) == 0 {
		return name, nil
	}
	// Resolve the part of the path that exists, because a link may lead outside.
	for at, rest := name, ""; ; at, rest = path.Dir(at), path.Join(path.Base(at), rest) {
		found, err := c.sb.FS().RealPath(ctx, at)
		if errors.Is(err, fs.ErrNotExist) && at != "/" {
			// A write to a broken link would create its target.
			if _, err := c.sb.FS().Lstat(ctx, at); err == nil {
				return "", modelErrorf("%s is outside of what the tools for files may use: it is a link to a file that does not exist.", oneLine(at))
			} else if !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
			continue
		}
		if err != nil {
			return "", err
		}
		found = path.Join(found, rest)
		allowed := func(name string) bool {
			return slices.ContainsFunc(c.t.opts.Paths, func(dir string) bool { return isWithin(dir, name) })
		}
		if allowed(found) {
			return found, nil
		}
		// In the emulator's folder mode, the sandbox's root is a folder of this machine.
		// Ignore that folder when comparing with the allowed paths.
		here, err := c.sb.FS().RealPath(ctx, c.sb.Cwd())
		if err != nil {
			return "", err
		}
		root, isFolder := strings.CutSuffix(here, c.sb.Cwd())
		if !isFolder || root == "" || !isWithin(root, found) || !allowed(strings.TrimPrefix(found, root)) {
			return "", modelErrorf("%s is outside of what the tools for files may use: %s.", oneLine(name), strings.Join(c.t.opts.Paths, ", "))
		}
		return found, nil
	}
}

func isWithin(dir, name string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// statReadable returns the info of a file or directory that is about to be read. It refuses
// anything else, such as a pipe. It returns nil and no error if the sandbox lacks the program
// stat.
func (c *call) statReadable(ctx context.Context, name string) (fs.FileInfo, error) {
	info, err := c.sb.FS().Stat(ctx, name)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() && !info.IsDir():
		return nil, modelErrorf("%s is not a regular file.", oneLine(name))
	}
	return info, nil
}

type writeFileInput struct {
	Path       location `json:"path" is:"the file"`
	Content    string   `json:"content" is:"all of its content"`
	Executable bool     `json:"executable,omitempty" is:"whether it can be executed"`
}

const (
	fileMode   = fs.FileMode(0o644)
	executable = fs.FileMode(0o111)
)

func writeFile(ctx context.Context, c *call, in *writeFileInput) (Result, error) {
	if int64(len(in.Content)) > c.limits().FileBytes {
		return Result{}, modelErrorf("The content has %d bytes; at most %d are written.", len(in.Content), c.limits().FileBytes)
	}
	name, err := c.resolvePath(ctx, in.Path)
	if err != nil {
		return Result{}, err
	}
	c.state.editing.Lock()
	defer c.state.editing.Unlock()
	mode := fileMode
	info, err := c.sb.FS().Stat(ctx, name)
	switch {
	case err == nil && info.IsDir():
		return Result{}, modelErrorf("%s is a directory.", oneLine(in.Path.given))
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, exec.ErrNotFound):
		return Result{}, err
	}
	if in.Executable {
		mode |= executable
	}
	if err := c.writeWhole(ctx, name, strings.NewReader(in.Content), mode); err != nil {
		return Result{}, err
	}
	return Result{Text: fmt.Sprintf("Wrote %d bytes to %s.", len(in.Content), oneLine(in.Path.given))}, nil
}

// writeWhole writes a file under a temporary name and then renames it, so that no other program
// sees a part of it.
func (c *call) writeWhole(ctx context.Context, name string, content io.Reader, mode fs.FileMode) error {
	w, err := c.sb.FS().Create(ctx, name, &sandbox.WriterOptions{Mode: &mode})
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, content); err != nil {
		return err
	}
	return w.Close()
}

type listInput struct {
	Path   location `json:"path,omitzero" is:"the directory; the working directory by default"`
	Offset int      `json:"offset,omitempty" is:"how many entries to skip"`
}

func (in *listInput) setDefaults() { in.Path.setDefault(".") }

func listFiles(ctx context.Context, c *call, in *listInput) (Result, error) {
	name, err := c.resolvePath(ctx, in.Path)
	if err != nil {
		return Result{}, err
	}
	entries, err := c.sb.FS().ReadDir(ctx, name)
	if err != nil {
		return Result{}, err
	}
	rows := make([]string, 0, len(entries))
	for _, d := range entries[min(max(in.Offset, 0), len(entries)):] {
		row := oneLine(d.Name())
		switch {
		case d.IsDir():
			row += "/"
		case d.Type()&fs.ModeSymlink != 0:
			row += " (link)"
		case !d.Type().IsRegular():
			row += " (special)"
		default:
			if info, err := d.Info(); err == nil {
				row += fmt.Sprintf(" (%d bytes)", info.Size())
			}
		}
		rows = append(rows, row)
	}
	text, shown := c.fitRows(rows)
	head := fmt.Sprintf("%s has %d entries.", oneLine(in.Path.given), len(entries))
	if shown < len(rows) {
		head += fmt.Sprintf(" Continue with offset %d.", max(in.Offset, 0)+shown)
	}
	return Result{Text: head + text}, nil
}

// fitRows returns as many of the rows as fit into a result, and their number.
func (c *call) fitRows(rows []string) (text string, shown int) {
	var b strings.Builder
	for _, row := range rows {
		if b.Len()+len(row)+1 > c.limits().dataBytes() {
			break
		}
		b.WriteString(row + "\n")
		shown++
	}
	if shown == 0 {
		return "", 0
	}
	return "\n" + wrapData(b.String()), shown
}
