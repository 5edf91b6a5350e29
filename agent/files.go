package agent

import (
	"bufio"
	"bytes"
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

type readFileInput struct {
	Path   location `json:"path" is:"the file; relative to the working directory, or absolute"`
	Offset int      `json:"offset,omitempty" is:"the first line, counted from 1"`
	Limit  int      `json:"limit,omitempty" is:"how many lines; 1000 by default"`
}

func readFile(ctx context.Context, c *call, in *readFileInput) (Result, error) {
	name, err := c.resolvePath(ctx, in.Path)
	if err != nil {
		return Result{}, err
	}
	info, err := c.statReadable(ctx, name)
	if err != nil {
		return Result{}, err
	}
	if info != nil && info.IsDir() {
		return listFiles(ctx, c, &listInput{Path: in.Path})
	}
	r, err := c.sb.FS().Open(ctx, name, nil)
	if err != nil {
		return Result{}, err
	}
	defer r.Close()
	first, limit := max(in.Offset, 1), in.Limit
	if limit <= 0 {
		limit = defaultLines
	}
	return readLines(r, oneLine(in.Path.given), first, limit, c.limits().dataBytes())
}

const byteOrderMark = "\ufeff"

// readLines returns lines of a file as a result of at most size bytes. The first line and the
// maximum number of lines are given. It does not read the file beyond them.
func readLines(file io.Reader, name string, first, limit, size int) (Result, error) {
	r := bufio.NewReaderSize(file, 32<<10)
	if start, err := r.Peek(maxSniffed); err != nil && !errors.Is(err, io.EOF) {
		return Result{}, err
	} else if bytes.IndexByte(start, 0) >= 0 {
		return Result{}, modelErrorf("%s is not a text file. Look at it with programs of the sandbox.", name)
	}
	var b strings.Builder
	number, shown, scanned, crs := 0, 0, 0, 0
	why, note := "", ""
	for why == "" {
		text, length, err := readLine(r, maxScanned-scanned)
		scanned += length
		if errors.Is(err, io.EOF) && length == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return Result{}, err
		}
		number++
		if number < first && scanned < maxScanned {
			continue
		}
		if number == 1 && bytes.HasPrefix(text, []byte(byteOrderMark)) {
			text, length = text[len(byteOrderMark):], length-len(byteOrderMark)
			note = " It begins with a byte order mark, which edits keep."
		}
		cr := 0
		if len(text) == length && bytes.HasSuffix(text, []byte("\r")) && !errors.Is(err, io.EOF) {
			text, length, cr = text[:length-1], length-1, 1
		}
		row, used := visibleHead(text, maxLine)
		if left := length - used; left > 0 {
			row += fmt.Sprintf("[… %d bytes left out …]", left)
		}
		row = fmt.Sprintf("%6d\t%s\n", number, row)
		switch {
		case scanned >= maxScanned:
			why = fmt.Sprintf("No more than %d MiB of a file are read.", maxScanned>>20)
		case shown == limit || b.Len()+len(row) > size:
			why = fmt.Sprintf("There is more: continue with offset %d.", number)
			continue
		}
		b.WriteString(row)
		shown++
		crs += cr
	}
	switch {
	case crs > 0 && crs < shown-1:
		note += " Some lines end in CR LF, others in LF; edits keep those of their place."
	case crs > 0:
		note += " Its lines end in CR LF, which edits keep."
	}
	switch {
	case b.Len() == 0 && why != "":
		return Result{Text: fmt.Sprintf("%s: nothing to show. %s", name, why)}, nil
	case b.Len() == 0:
		return Result{Text: fmt.Sprintf("%s has %d lines: nothing from line %d on.", name, number, first)}, nil
	case why == "":
		why = "This is the end of the file."
	}
	return Result{Text: fmt.Sprintf("%s, lines %d to %d. %s%s\n", name, first, first+shown-1, why, note) + wrapData(b.String())}, nil
}

// readLine reads a line, but stops after size bytes. It returns the first maxLine bytes of the
// line, and the number of bytes that it has read, both without the line end.
func readLine(r *bufio.Reader, size int) (text []byte, length int, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		length += len(piece)
		if room := maxLine - len(text); room > 0 {
			text = append(text, piece[:min(room, len(piece))]...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && length < size:
			continue
		case err == nil:
			length--
			return bytes.TrimSuffix(text, []byte("\n")), length, nil
		case errors.Is(err, bufio.ErrBufferFull):
			return text, length, nil
		}
		return text, length, err
	}
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

type editInput struct {
	Path location `json:"path" is:"the file"`
	Old  string   `json:"old_string,omitempty" is:"the text to replace, exactly as it is in the file"`
	New  string   `json:"new_string,omitempty" is:"what to put in its place; nothing by default"`
	All  bool     `json:"replace_all,omitempty" is:"whether to replace it wherever it is"`
}

func editFile(ctx context.Context, c *call, in *editInput) (Result, error) {
	name, err := c.resolvePath(ctx, in.Path)
	if err != nil {
		return Result{}, err
	}
	c.state.editing.Lock()
	defer c.state.editing.Unlock()
	info, err := c.statReadable(ctx, name)
	if err != nil {
		return Result{}, err
	}
	if info != nil && info.IsDir() {
		return Result{}, modelErrorf("%s is a directory.", oneLine(in.Path.given))
	}
	data, err := c.readForEdit(ctx, name)
	if err != nil {
		return Result{}, err
	}
	edited, summary, err := in.apply(string(data))
	if err != nil {
		return Result{}, err
	}
	if int64(len(edited)) > c.limits().FileBytes {
		return Result{}, modelErrorf("The file would have %d bytes; at most %d are written.", len(edited), c.limits().FileBytes)
	}
	mode := fileMode
	if info != nil {
		mode = info.Mode().Perm()
	}
	if err := c.writeWhole(ctx, name, strings.NewReader(edited), mode); err != nil {
		return Result{}, err
	}
	return Result{Text: summary + " in " + oneLine(in.Path.given) + "."}, nil
}

// readForEdit reads a file that is about to be edited.
func (c *call) readForEdit(ctx context.Context, name string) ([]byte, error) {
	r, err := c.sb.FS().Open(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, c.limits().FileBytes+1))
	if err == nil && int64(len(data)) > c.limits().FileBytes {
		err = modelErrorf("The file has more than %d bytes: use programs of the sandbox.", c.limits().FileBytes)
	}
	return data, err
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
