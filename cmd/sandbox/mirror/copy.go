package mirror

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/source"
	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/own"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/untar"
	"github.com/go-vercel/sandbox/outputs"
)

const (
	// pathsAtOnce is how many paths one command gets.
	pathsAtOnce = 500
	// maxListing limits the listing of a sandbox, some 500,000 files.
	maxListing = 64 << 20
	// maxComplaint is how much of what a program says about an error is shown, and
	// maxSaid how much of what it says about files is read.
	maxComplaint = 4 << 10
	maxSaid      = 16 << 20
	// maxUnpacked is how much a sandbox may send in one go.
	maxUnpacked = 64 << 30
)

// complaint is what a program of the sandbox says about an error.
type complaint struct{ outputs.Tail }

func newComplaint() *complaint { return &complaint{outputs.Tail{Max: maxComplaint}} }

// String returns the text as one that a terminal can be given.
func (c *complaint) String() string { return shown(c.Tail.String()) }

func shown(text string) string {
	text = strings.TrimSpace(text)
	return redact.Printable(text[max(0, len(text)-maxComplaint):])
}

// listRemote lists the directory of the sandbox.
func (s *syncer) listRemote(ctx context.Context) (listing, error) {
	var stdout strings.Builder
	s.absent = false
	stderr := newComplaint()
	result, err := own.Run(ctx, s.sb, &sandbox.CommandOptions{
		Stdout: outputs.Limit(&stdout, maxListing), Stderr: stderr, KillOnCancel: true,
	}, "bash", "-c", listScript, "bash", s.there)
	switch {
	case errors.Is(err, outputs.ErrLimit):
		return nil, fmt.Errorf("the listing of %s in the sandbox is longer than %d MiB", s.there, maxListing>>20)
	case err != nil:
		return nil, err
	case result.ExitCode == exitMissing && s.upward:
		s.absent = true
		return listing{}, nil
	case result.ExitCode == exitMissing:
		return nil, fmt.Errorf("there is no directory %s in sandbox %s: %w", s.there, s.sb.Name(), fs.ErrNotExist)
	case result.ExitCode != 0:
		return nil, fmt.Errorf("listing %s in the sandbox, which needs bash and GNU find, failed: %s", s.there, stderr)
	}
	return parseList(stdout.String(), s.ignore, s.more)
}

// push makes the changes in the sandbox.
func (s *syncer) push(ctx context.Context, p plan, tree listing) error {
	var files []sandbox.File
	var links []string
	for _, name := range p.Write {
		e := tree[name]
		if e.Mode&fs.ModeSymlink != 0 {
			links = append(links, name)
			continue
		}
		mode := e.Mode.Perm()
		files = append(files, sandbox.File{
			Path: path.Join(s.there, name), Mode: &mode, ModTime: e.ModTime, Reader: listedFile(s.root, name, e.Size),
		})
	}
	late, early := divide(p.Delete, p.Clear)
	dirs := p.Make
	if s.absent { // it may be empty, or have nothing but links
		dirs = append([]string{"."}, dirs...)
	}
	steps := func(all ...step) error {
		for _, st := range all {
			if err := s.runThere(ctx, st.command, st.paths); err != nil {
				return err
			}
		}
		return nil
	}
	lateDirs, earlyDirs := divide(p.Remove, p.Clear)
	// What is ignored may be left in a directory that goes, and keeps it.
	rmdir := []string{"rmdir", "--ignore-fail-on-non-empty"}
	err := steps(step{slices.Concat(p.Replace, early), []string{"rm", "-f"}}, step{reversed(earlyDirs), rmdir},
		step{reversed(p.Clear), []string{"rmdir"}}, step{dirs, []string{"mkdir", "-p"}})
	if err != nil {
		return err
	}
	if len(files) > 0 {
		if err := s.sb.WriteFiles(ctx, files, &sandbox.WriteFilesOptions{Progress: s.o.Progress}); err != nil {
			return source.OfUpload(s.root.Name(), err)
		}
	}
	for _, name := range links {
		to := path.Join(s.there, name)
		if err := s.sb.FS().Remove(ctx, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := s.sb.FS().Symlink(ctx, tree[name].Link, to); err != nil {
			return err
		}
	}
	return steps(step{late, []string{"rm", "-f"}}, step{reversed(lateDirs), rmdir})
}

// step is a program of the sandbox and the paths that it is run with.
type step struct{ paths, command []string }

// divide tells what can be deleted when all is copied, so that nothing is lost if
// that fails, from what makes room for it: what is in a directory that a file
// replaces.
func divide(paths, cleared []string) (late, early []string) {
	for _, p := range paths {
		if slices.ContainsFunc(cleared, func(dir string) bool { return below(dir)(p) }) {
			early = append(early, p)
		} else {
			late = append(late, p)
		}
	}
	return late, early
}

// runThere runs a program of the sandbox with paths of its directory.
func (s *syncer) runThere(ctx context.Context, command, paths []string) error {
	for part := range slices.Chunk(paths, pathsAtOnce) {
		args := append(slices.Clone(command[1:]), "--")
		for _, p := range part {
			args = append(args, path.Join(s.there, p))
		}
		stderr := newComplaint()
		result, err := own.Run(ctx, s.sb, &sandbox.CommandOptions{Stderr: stderr}, command[0], args...)
		if err != nil {
			return err
		}
		if result.ExitCode != 0 {
			return fmt.Errorf("%s in the sandbox failed: %s", command[0], stderr)
		}
	}
	return nil
}

// reversed has the directories below others before them.
func reversed(paths []string) []string {
	out := slices.Clone(paths)
	slices.Reverse(out)
	return out
}

// listedFile is a file that was listed, as long as it was then. Neither a link that
// has taken its place is followed, nor what has been added to it read; reading
// what is shorter now, or something else, fails with errChanged.
func listedFile(root *os.Root, name string, size int64) *lateFile {
	changed := fmt.Errorf("%s: %w", name, errChanged)
	return &lateFile{size: size, short: changed, open: func() (io.ReadCloser, error) {
		name := filepath.FromSlash(name)
		// It is looked at first: opening what is no file might wait for a writer.
		listed, err := root.Lstat(name)
		if isGone(err) || err == nil && !listed.Mode().IsRegular() {
			return nil, changed
		}
		if err != nil {
			return nil, err
		}
		f, err := root.Open(name)
		if isGone(err) {
			return nil, changed
		}
		if err != nil {
			return nil, err
		}
		opened, err := f.Stat()
		if err == nil && !os.SameFile(listed, opened) {
			err = changed
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}}
}

// isGone reports whether err says that something is not there any more, or that
// something else has taken its place or that of a directory above it.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EINVAL)
}

// pull makes the changes here.
func (s *syncer) pull(ctx context.Context, p plan, tree listing) error {
	if s.root == nil {
		if err := os.MkdirAll(s.here, 0o777); err != nil {
			return err
		}
		var err error
		if s.root, err = os.OpenRoot(s.here); err != nil {
			return err
		}
	}
	remove := func(paths []string, must bool) error {
		for _, name := range paths {
			err := s.root.Remove(filepath.FromSlash(name))
			if err != nil && must && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	}
	late, early := divide(p.Delete, p.Clear)
	// On a disk for which both names are one, deleting the old one would delete the new.
	late = slices.DeleteFunc(late, func(old string) bool {
		same := slices.ContainsFunc(p.Write, func(name string) bool { return strings.EqualFold(name, old) })
		if same {
			early = append(early, old)
		}
		return same
	})
	lateDirs, earlyDirs := divide(p.Remove, p.Clear)
	if err := remove(slices.Concat(p.Replace, early), true); err != nil {
		return err
	}
	_ = remove(reversed(earlyDirs), false) // what is ignored may be left in them
	if err := remove(reversed(p.Clear), true); err != nil {
		return err
	}
	for _, name := range p.Make {
		if err := s.root.MkdirAll(filepath.FromSlash(name), 0o777); err != nil {
			return err
		}
	}
	if len(p.Write) > 0 {
		if err := s.unpack(ctx, p.Write, tree); err != nil {
			return err
		}
	}
	if err := remove(late, true); err != nil {
		return err
	}
	_ = remove(reversed(lateDirs), false)
	return nil
}

// unpack copies files of the sandbox. It takes what the listing has and nothing
// else: neither was written by anybody to be trusted.
func (s *syncer) unpack(ctx context.Context, names []string, tree listing) error {
	wanted := map[string]fs.FileMode{}
	var list strings.Builder
	for _, p := range names {
		wanted[p] = tree[p].Mode.Type()
		list.WriteString("./" + p + "\x00")
	}
	done := int64(0)
	unpacking := untar.Options{
		MaxEntries: len(names) + 500_000, MaxBytes: maxUnpacked, OutsideLinks: s.o.OutsideLinks,
		Check: func(name string, h *tar.Header) error {
			kind, listed := wanted[name]
			regular := h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeGNUSparse
			switch {
			case !listed:
				return fmt.Errorf("%w: it was not requested", untar.ErrUnsafe)
			case kind == 0 && !regular, kind == fs.ModeSymlink && h.Typeflag != tar.TypeSymlink:
				return fmt.Errorf("%w: it is not of the kind that was listed", untar.ErrUnsafe)
			}
			return nil
		},
		Progress: func(name string, n int) {
			if done += int64(n); s.o.Progress != nil {
				s.o.Progress(sandbox.Progress{Path: name, Done: done, Total: -1})
			}
		},
	}
	said, err := s.packed(ctx, list.String(), func(r io.Reader) error {
		return untar.ExtractEncoded(ctx, r, s.root, unpacking)
	})
	listed := func(name string) bool { _, ok := wanted[name]; return ok }
	changed, gone, mendErr := coreutils.Mend(ctx, said, s.root, listed, unpacking)
	_, only := coreutils.PackChanges(said)
	if said.ExitCode != 0 && !only && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) {
		// All that could be packed is here; the rest may have gone since it was listed.
		err = fmt.Errorf("reading %s in the sandbox failed: %w: exit code %d: %s", s.there, errChanged, said.ExitCode, shown(said.Stderr))
	}
	if err := errors.Join(err, mendErr); err != nil {
		return err
	}
	for _, name := range changed {
		// Its size may be that of what is there now: by its time it is another.
		if err := s.root.Chtimes(filepath.FromSlash(name), time.Time{}, tree[name].ModTime.Add(-2*time.Second)); err != nil {
			return err
		}
	}
	if len(changed)+len(gone) > 0 {
		s.inUse = &sandbox.ChangedError{Path: s.there, Changed: changed, Gone: gone}
	}
	return nil
}

// packed has the sandbox pack the files of a list, and passes what it writes to
// unpack.
func (s *syncer) packed(ctx context.Context, list string, unpack func(io.Reader) error) (said coreutils.Result, err error) {
	args := []string{"-c", coreutils.PackNamedScript, "bash", s.there}
	var unpackErr error
	err = clean.Run("bash", args, func(name string, args []string) (int, string, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stderr := &outputs.Tail{Max: maxSaid}
		cmd := s.sb.CommandContext(ctx, name, args...)
		cmd.Stdin, cmd.Stderr = strings.NewReader(list), stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return 0, "", err
		}
		if err := cmd.Start(); err != nil {
			return 0, "", err
		}
		if unpackErr = unpack(stdout); unpackErr != nil && !errors.Is(unpackErr, io.ErrUnexpectedEOF) {
			cancel()
		}
		err = cmd.Wait()
		said = coreutils.Result{Stderr: stderr.String()}
		if e, ok := errors.AsType[*sandbox.ExitError](err); ok {
			said.ExitCode, err = e.ExitCode(), nil
		}
		return said.ExitCode, said.Stderr, err
	})
	return said, cmp.Or(unpackErr, err)
}
