package coreutils

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// listFormat is printed for each entry of a directory. The name comes last and
// is terminated by NUL, the one byte that it can't contain.
const listFormat = `%y %m %s %U %G %A@ %T@ %C@ %n %i %D %b %f\0`

// Entry is a file in a directory. Its BirthTime is unknown and its BlockSize is
// 512.
type Entry struct {
	Name string
	Stat Stat
}

// findArg returns dir as an argument of find.
func findArg(dir string) string {
	if strings.ContainsRune("-()!,", rune(dir[0])) {
		dir = "./" + dir // find would take it for part of its expression
	}
	if !strings.HasSuffix(dir, "/") {
		dir += "/" // follow a link, and refuse what is not a directory
	}
	return dir
}

// vanished reports whether find has failed only for files that were removed or replaced
// before it could look at them, which happens in spite of -ignore_readdir_race. Messages
// about the directory itself contain the name from findArg, which, unlike all others, ends
// in a slash, or that name without the slash.
func vanished(r Result, dir string) bool {
	for line := range strings.Lines(r.Stderr) {
		said, isFind := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "find: ")
		i := strings.LastIndex(said, ": ")
		if !isFind || i < 0 {
			return false
		}
		if name := strings.Trim(said[:i], "'‘’"); name == dir || strings.HasSuffix(name, "/") {
			return false
		}
		switch said[i+2:] {
		case "No such file or directory", "Not a directory", "Too many levels of symbolic links":
		default:
			return false
		}
	}
	return r.Stderr != "" && r.ExitCode <= 1
}

// List returns the entries of a directory, in any order. Entries that are removed during
// the listing may be missing.
func (run Runner) List(ctx context.Context, dir string) ([]Entry, error) {
	args := []string{findArg(dir), "-maxdepth", "1", "-mindepth", "1", "-ignore_readdir_race", "-printf", listFormat}
	plain := func(to io.Writer) (io.Writer, func() error) { return to, func() error { return nil } }
	entries, lossy, err := run.list(ctx, dir, "find", args, plain)
	if err == nil && lossy {
		name, args := encoded("find", args)
		entries, _, err = run.list(ctx, dir, name, args, decoding)
	}
	return entries, err
}

// Tree lists a directory and those below it, up to limit entries, by path. The path of
// the directory itself is ".". Tree omits directories that were not listed completely. It
// fails if anything in the tree is unusual, such as a directory without read permission.
func (run Runner) Tree(ctx context.Context, dir string, limit int) (top *Entry, lists map[string][]Entry, err error) {
	const script = `find "$1" -ignore_readdir_race -printf "$2" | head -z -n "$3"`
	lists = map[string][]Entry{".": nil}
	var last string
	n := 0
	p := &listParser{tree: true, limit: limit, emit: func(e Entry) {
		n++
		if e.Name == "." {
			top = &e
			return
		}
		last = e.Name
		parent, name := path.Split(e.Name)
		parent = path.Clean(parent)
		if e.Stat.RawMode&sIFMT == sIFDIR {
			lists[e.Name] = nil
		}
		e.Name = name
		lists[parent] = append(lists[parent], e)
	}}
	format := strings.Replace(listFormat, "%f", "%P", 1)
	res, err := run(ctx, Call{Name: "sh", Args: []string{"-c", script, "sh", findArg(dir), format, strconv.Itoa(limit)}, Stdout: p})
	if err == nil {
		err = p.end()
	}
	switch {
	case err != nil:
		return nil, nil, err
	case (res.ExitCode != 0 || res.Stderr != "") && !vanished(res, dir):
		return nil, nil, NewError("find", res.ExitCode, res.Stderr)
	}
	if n >= limit && last != "" {
		// find descends into each directory before it continues.
		for delete(lists, last); last != "."; {
			last = path.Dir(last)
			delete(lists, last)
		}
	}
	for _, list := range lists {
		for _, e := range list {
			if strings.ContainsRune(e.Name, utf8.RuneError) {
				return nil, nil, fmt.Errorf("%w: a name is not UTF-8", ErrOutput)
			}
		}
	}
	return top, lists, nil
}

// list lists dir and parses the output as it arrives. lossy is set if a name may have been
// changed in transit.
func (run Runner) list(ctx context.Context, dir, name string, args []string, decode func(io.Writer) (io.Writer, func() error)) (entries []Entry, lossy bool, err error) {
	p := &listParser{emit: func(e Entry) {
		lossy = lossy || strings.ContainsRune(e.Name, utf8.RuneError)
		entries = append(entries, e)
	}}
	w, end := decode(p)
	name, args = Carry(name, args)
	res, err := run(ctx, Call{Name: name, Args: args, Stdout: w})
	decodeErr := end()
	switch {
	case err != nil:
		return nil, false, err
	case res.ExitCode != 0 && !vanished(res, dir):
		return nil, false, NewError(name, res.ExitCode, res.Stderr)
	case decodeErr != nil:
		return nil, false, decodeErr
	}
	return entries, lossy, p.end()
}

const (
	// maxListEntry limits an entry of a listing: its numbers and a name, which
	// Linux limits to 255 bytes.
	maxListEntry = 64 << 10
	// maxEntries and maxListing limit a listing, which is held in memory: to
	// about 200 MB.
	maxEntries, maxListing = 250_000, 32 << 20
)

// listParser splits the output of listFormat into entries. If the output is invalid, Write
// fails, which ends the command.
type listParser struct {
	emit func(Entry)
	tree bool // names are paths
	// limit is the maximum number of entries. Zero means maxEntries.
	limit, entries, size int
	rest                 []byte
	err                  error
}

func (p *listParser) Write(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n := len(b)
	if p.size += n; p.size > maxListing {
		p.err = fmt.Errorf("%w: the listing is longer than %d bytes", ErrOutput, maxListing)
		return 0, p.err
	}
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
		e, err := parseListEntry(string(entry), p.tree)
		if err != nil {
			p.err = err
			return 0, err
		}
		if p.entries++; p.entries > cmp.Or(p.limit, maxEntries) {
			p.err = fmt.Errorf("%w: the listing has more than %d entries", ErrOutput, cmp.Or(p.limit, maxEntries))
			return 0, p.err
		}
		p.emit(e)
		p.rest = p.rest[:0]
		b = b[i+1:]
	}
	if len(p.rest)+len(b) > maxListEntry {
		p.err = fmt.Errorf("%w: an entry of the listing has no end", ErrOutput)
		return 0, p.err
	}
	p.rest = append(p.rest, b...)
	return n, nil
}

// end returns the error of the listing, if any.
func (p *listParser) end() error {
	if p.err == nil && len(p.rest) > 0 {
		p.err = fmt.Errorf("%w: the listing ends in the middle of an entry", ErrOutput)
	}
	return p.err
}

// parseListEntry parses one entry, without its NUL. Its name is that of a file or, in a
// tree, a path.
func parseListEntry(s string, tree bool) (Entry, error) {
	const fields = 13
	parts := strings.SplitN(s, " ", fields)
	if len(parts) != fields {
		return Entry{}, fmt.Errorf("%w: entry %.100q of the listing is too short", ErrOutput, s)
	}
	name := parts[12]
	if tree && name == "" {
		name = "." // the listed directory itself
	} else if name == "." || !tree && strings.Contains(name, "/") || !fs.ValidPath(strings.ToValidUTF8(name, "?")) {
		return Entry{}, fmt.Errorf("%w: the listing has an entry named %.100q", ErrOutput, name)
	}
	p := fieldParser{}
	st := Stat{
		RawMode: listType(parts[0]) | uint32(p.uint(parts[1], 8, 16))&0o7777,
		Size:    p.int(parts[2]),
		UID:     int(p.uint(parts[3], 10, 32)), GID: int(p.uint(parts[4], 10, 32)),
		AccessTime: p.time(parts[5]), ModTime: p.time(parts[6]), ChangeTime: p.time(parts[7]),
		Links: p.uint(parts[8], 10, 64), Inode: p.uint(parts[9], 10, 64), Device: p.uint(parts[10], 10, 64),
		BlockSize: 512, Blocks: p.int(parts[11]),
	}
	if p.err != nil {
		return Entry{}, p.err
	}
	return Entry{name, st}, nil
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

// decoding returns a writer that decodes base64 into to. end must be called after the
// last write, and returns the error.
func decoding(to io.Writer) (w io.Writer, end func() error) {
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(to, base64.NewDecoder(base64.StdEncoding, in))
		if err != nil && !errors.Is(err, ErrOutput) {
			err = fmt.Errorf("%w: %w", ErrOutput, err)
		}
		in.CloseWithError(err)
		done <- err
	}()
	return out, func() error {
		out.Close()
		return <-done
	}
}
