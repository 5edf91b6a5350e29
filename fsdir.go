package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// listFormat is printed for each entry of a directory. The name comes last and
// is ended by NUL, the one byte that can't be part of it.
const listFormat = `%y %m %s %U %G %A@ %T@ %C@ %n %i %D %b %f\0`

// ReadDir returns the entries of a directory in the order of their names. Their
// Info methods make no request: one request tells all.
func (f *FileSystem) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if err := checkPath("open", name); err != nil {
		return nil, err
	}
	dir := name
	if strings.ContainsRune("-()!,", rune(dir[0])) {
		dir = "./" + dir // find would take it for a part of its expression
	}
	if !strings.HasSuffix(dir, "/") {
		dir += "/" // follow a link, and refuse what is not a directory
	}
	args := []string{dir, "-maxdepth", "1", "-mindepth", "1", "-ignore_readdir_race", "-printf", listFormat}
	entries, lossy, err := f.list(ctx, "find", args, func(w io.Writer) io.WriteCloser { return nopCloser{w} })
	if err == nil && lossy {
		program, args := encoded("find", args)
		entries, _, err = f.list(ctx, program, args, newBase64Writer)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// list runs a listing and parses it while it arrives. lossy is true when a name
// may not have survived the way here.
func (f *FileSystem) list(ctx context.Context, name string, args []string, decode func(io.Writer) io.WriteCloser) (entries []fs.DirEntry, lossy bool, err error) {
	try := func(env map[string]string) error {
		entries, lossy = nil, false
		p := &listParser{emit: func(e *fileInfo) {
			lossy = lossy || strings.ContainsRune(e.name, utf8.RuneError)
			entries = append(entries, fs.FileInfoToDirEntry(e))
		}}
		w := decode(p)
		name, args := carry(name, args)
		done, err := f.t.RunCommand(ctx, name, args, &CommandOptions{Env: env, Stdout: w})
		if err != nil {
			return err
		}
		if done.ExitCode != 0 {
			stderr, err := done.Stderr(ctx)
			if err != nil {
				return err
			}
			return newFSError(name, done.ExitCode, stderr)
		}
		if err := w.Close(); err != nil {
			return err
		}
		return p.end()
	}
	err = try(nil)
	if fe, ok := errors.AsType[*FSError](err); ok && !fe.understood() {
		if again := try(map[string]string{"LC_ALL": "C"}); again == nil || errors.As(again, &fe) {
			err = again
		}
	}
	return entries, lossy, err
}

// maxListEntry bounds an entry of a listing: its numbers and a name, which Linux
// limits to 255 bytes.
const maxListEntry = 64 << 10

// listParser cuts the output of listFormat into entries. A write that makes no
// sense fails, which ends the command's output.
type listParser struct {
	emit func(*fileInfo)
	rest []byte
	err  error
}

func (p *listParser) Write(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n := len(b)
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 {
			break
		}
		entry := b[:i]
		if len(p.rest) > 0 {
			p.rest = append(p.rest, entry...)
			entry = p.rest
		}
		info, err := parseListEntry(string(entry))
		if err != nil {
			p.err = err
			return 0, err
		}
		p.emit(info)
		p.rest = p.rest[:0]
		b = b[i+1:]
	}
	if len(p.rest)+len(b) > maxListEntry {
		p.err = fmt.Errorf("%w: an entry of the listing has no end", errOutput)
		return 0, p.err
	}
	p.rest = append(p.rest, b...)
	return n, nil
}

// end reports what was wrong with the listing.
func (p *listParser) end() error {
	if p.err == nil && len(p.rest) > 0 {
		p.err = fmt.Errorf("%w: the listing ends in the middle of an entry", errOutput)
	}
	return p.err
}

// parseListEntry reads one entry, without its NUL.
func parseListEntry(s string) (*fileInfo, error) {
	const fields = 13
	parts := strings.SplitN(s, " ", fields)
	if len(parts) != fields {
		return nil, fmt.Errorf("%w: entry %.100q of the listing is too short", errOutput, s)
	}
	name := parts[12]
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%w: the listing has an entry named %.100q", errOutput, name)
	}
	p := fieldParser{}
	st := FileStat{
		RawMode: listType(parts[0]) | uint32(p.uint(parts[1], 8, 16))&0o7777,
		Size:    p.int(parts[2]),
		UID:     int(p.uint(parts[3], 10, 32)), GID: int(p.uint(parts[4], 10, 32)),
		AccessTime: p.time(parts[5]), ModTime: p.time(parts[6]), ChangeTime: p.time(parts[7]),
		Links: p.uint(parts[8], 10, 64), Inode: p.uint(parts[9], 10, 64), Device: p.uint(parts[10], 10, 64),
		BlockSize: 512, Blocks: p.int(parts[11]),
	}
	if p.err != nil {
		return nil, p.err
	}
	return &fileInfo{name: name, stat: st}, nil
}

func listType(s string) uint32 {
	switch s {
	case "f":
		return sIFREG
	case "d":
		return sIFDIR
	case "l":
		return sIFLNK
	case "b":
		return sIFBLK
	case "c":
		return sIFCHR
	case "p":
		return sIFIFO
	case "s":
		return sIFSOCK
	}
	return 0 // becomes fs.ModeIrregular
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// base64Writer decodes what is written to it, line by line or in any other
// pieces, and passes it on.
type base64Writer struct {
	w    io.Writer
	rest []byte
}

func newBase64Writer(w io.Writer) io.WriteCloser { return &base64Writer{w: w} }

func (d *base64Writer) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' && c != '\r' {
			d.rest = append(d.rest, c)
		}
	}
	whole := len(d.rest) &^ 3
	if err := d.pass(d.rest[:whole]); err != nil {
		return 0, err
	}
	d.rest = append(d.rest[:0], d.rest[whole:]...)
	return len(b), nil
}

func (d *base64Writer) pass(b []byte) error {
	out, err := base64.StdEncoding.AppendDecode(nil, b)
	if err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	_, err = d.w.Write(out)
	return err
}

// Close reports output that was cut off.
func (d *base64Writer) Close() error {
	if len(d.rest) > 0 {
		return fmt.Errorf("%w: %w", errOutput, io.ErrUnexpectedEOF)
	}
	return nil
}

// maxInline is how much data travels as an argument of a command. The system
// limits an argument to 128 KiB, and base64 makes it a third longer.
const maxInline = 64 << 10

// AppendFile adds data to the end of a file. The file keeps its mode; a missing
// one is made with mode 0644. What is sent is what is added, not the file.
//
// Data up to 64 KiB take one request. Longer ones are uploaded to /tmp first.
func (f *FileSystem) AppendFile(ctx context.Context, name string, data []byte) error {
	const (
		inline = `printf %s "$2" | base64 -d | dd of="$1" oflag=append conv=notrunc status=none`
		upload = `dd if="$2" of="$1" bs=1M oflag=append conv=notrunc status=none; r=$?; rm -f -- "$2"; exit $r`
	)
	if err := checkPath("append", name); err != nil {
		return err
	}
	script, source := inline, base64.StdEncoding.EncodeToString(data)
	if len(data) > maxInline {
		script, source = upload, "/tmp/.append-"+rand.Text()
		if err := f.write(ctx, "append", name, File{Path: source, Content: data, Mode: new(fs.FileMode(0o600))}); err != nil {
			return err
		}
	}
	err := f.pathOp(ctx, "append", name, "sh", "-c", script, "sh", name, source)
	if _, ok := errors.AsType[*FSError](err); err != nil && !ok && script == upload {
		f.discard(ctx, source)
	}
	if errors.Is(err, syscall.ENOENT) {
		// A directory on the way is missing. As WriteFile does, make it.
		return f.write(ctx, "append", name, File{Path: name, Content: data})
	}
	return err
}
