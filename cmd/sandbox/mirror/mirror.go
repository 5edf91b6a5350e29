// Package mirror makes a directory of a sandbox like one of this machine, or the
// other way round, and keeps it so. It copies only what has changed, as the command
// "sandbox sync" does, which is made of it.
//
//	changes, err := mirror.Upload(ctx, sb, "app", "/vercel/sandbox", nil)
//
// A file has changed if its size, permissions or modification time differ; an
// upload keeps the time in whole seconds, as the API does.
//
// What the local directory's .gitignore and .sandboxignore files and its
// .git/info/exclude name is left alone on both sides, and so is .git in every
// directory, however it is spelled. Of what comes from the sandbox, that is left
// out, too, which Git or an editor would run by itself: see [Changes].LeftOut. Git's own list of the user
// (core.excludesFile) is not read. A .gitignore that comes from the sandbox counts
// from the next time on.
//
// Both sides may change meanwhile: a file is copied as it was at some time. The
// sandbox is not trusted: only what it listed is written, below the local
// directory. It needs bash, GNU find and tar, gzip and base64.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/source"
	"github.com/go-vercel/sandbox/internal/glob"
	"github.com/go-vercel/sandbox/internal/untar"
)

// Options are the options of this package's functions. The zero value copies
// everything that is not ignored, and deletes nothing.
type Options struct {
	// Exclude has patterns of what else is left alone, in the syntax of
	// .gitignore.
	Exclude []string
	// Delete deletes what the source does not have. Without it the destination
	// keeps that.
	Delete bool
	// OutsideLinks makes symbolic links of a sandbox that lead out of the directory
	// here as well. They are never followed. Without it a download leaves them
	// alone on both sides, and an upload deletes none of them in the sandbox.
	OutsideLinks bool
	// DryRun returns the changes without making them. A watch ignores it.
	DryRun bool
	// Progress, if not nil, is called as files are copied.
	Progress func(sandbox.Progress)
	// OnSync, if not nil, is called by a watch after each time that it has
	// compared the two, with what was changed or why that failed.
	OnSync func(Changes, error)
}

// Changes are what was done to the destination, or would be. All paths are
// relative, with slashes, and sorted.
type Changes struct {
	Write, Mkdir, Delete []string
	// LeftOut is what a download leaves alone on both sides because Git or an editor
	// would run it by itself: files named HEAD, and whatever is in a directory that
	// has one here, since Git takes that for a repository; and what editors, agents
	// and shells obey without a question: .vscode, .vim, .claude, .husky and the like.
	LeftOut []string
	// OutsideLinks is what a download leaves alone without [Options].OutsideLinks.
	OutsideLinks []string
}

// ErrInTheWay reports that the destination has a directory with files where the
// source has a file, which only [Options].Delete replaces.
var ErrInTheWay = errors.New("it is a file in the source, and a directory with files in the destination")

// Upload makes the directory dir of a sandbox like the directory localDir of this
// machine. A nil opts means the defaults.
func Upload(ctx context.Context, sb *sandbox.Sandbox, localDir, dir string, opts *Options) (Changes, error) {
	s, err := newSyncer(sb, localDir, dir, true, opts)
	if err != nil {
		return Changes{}, err
	}
	return s.once(ctx)
}

// Download makes the directory localDir of this machine, which need not exist, like
// the directory dir of a sandbox. If the sandbox has no such directory, the error
// matches [fs.ErrNotExist].
func Download(ctx context.Context, sb *sandbox.Sandbox, dir, localDir string, opts *Options) (Changes, error) {
	s, err := newSyncer(sb, localDir, dir, false, opts)
	if err != nil {
		return Changes{}, err
	}
	return s.once(ctx)
}

// syncer makes one directory like another.
type syncer struct {
	sb     *sandbox.Sandbox
	here   string
	there  string
	upward bool // from here to the sandbox
	o      Options
	more   *ignoreList // by options

	// The rest is of the last attempt.
	root   *os.Root              // of here; nil if it does not exist
	absent bool                  // whether there does not exist
	inUse  *sandbox.ChangedError // what a complete download met
	ignore *ignoreList           // by files

	// Of a watch of this machine: enter is called for each directory before it is
	// read, and sent has what was uploaded, with its exact times.
	enter func(dir string) error
	sent  listing
}

func newSyncer(sb *sandbox.Sandbox, here, there string, upward bool, opts *Options) (*syncer, error) {
	if here == "" || there == "" {
		return nil, fmt.Errorf("%w: a directory is empty", sandbox.ErrInvalid)
	}
	s := &syncer{sb: sb, here: here, there: there, upward: upward}
	if opts != nil {
		s.o = *opts
	}
	var err error
	if s.more, err = newIgnoreList(s.o.Exclude); err != nil {
		return nil, fmt.Errorf("%w: Exclude: %w", sandbox.ErrInvalid, err)
	}
	return s, nil
}

// errChanged is the error of a file that is not what it was when it was listed.
var errChanged = errors.New("it has changed meanwhile")

// attempts is how often the two are compared because something has changed
// between the comparison and the copy.
const attempts = 3

// once makes the destination like the source.
func (s *syncer) once(ctx context.Context) (Changes, error) {
	var before Changes
	for n := 1; ; n++ {
		c, err := s.try(ctx)
		again := errors.Is(err, errChanged)
		if err == nil && s.inUse != nil { // all else is done
			err, again = s.inUse, true
			c.Write = slices.DeleteFunc(c.Write, func(name string) bool { return slices.Contains(s.inUse.Gone, name) })
			before.Write, before.Mkdir, before.Delete = union(before.Write, c.Write), union(before.Mkdir, c.Mkdir), union(before.Delete, c.Delete)
		}
		if !again || n == attempts || ctx.Err() != nil {
			c.Write, c.Mkdir, c.Delete = union(before.Write, c.Write), union(before.Mkdir, c.Mkdir), union(before.Delete, c.Delete)
			return c, err
		}
	}
}

// union returns what is in either of two lists, sorted.
func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

func (s *syncer) try(ctx context.Context) (Changes, error) {
	var err error
	s.inUse = nil
	// Another directory may have taken its place since.
	if s.root, err = os.OpenRoot(s.here); err != nil && (s.upward || !errors.Is(err, fs.ErrNotExist)) {
		return Changes{}, err
	}
	defer s.closeRoot()
	local := listing{}
	if s.root != nil {
		if local, s.ignore, err = listLocal(s.root.FS(), s.more, s.enter); err != nil {
			return Changes{}, source.Below(s.here, err)
		}
	}
	remote, err := s.listRemote(ctx)
	if err != nil {
		return Changes{}, err
	}
	from, to := remote, local
	var leftOut []string
	if s.upward {
		from, to = local, remote
		s.forgetOutdated(to, from)
	} else {
		leftOut = guard(s.root, remote, local)
	}
	var outside []string
	if !s.o.OutsideLinks {
		outside = s.leaveOutsideLinks(remote, local)
	}
	p := diff(from, to)
	if !s.o.Delete {
		if i := slices.IndexFunc(p.Clear, func(dir string) bool { return slices.ContainsFunc(slices.Concat(p.Delete, p.Remove), below(dir)) }); i >= 0 {
			return Changes{}, fmt.Errorf("%s: %w", p.Clear[i], ErrInTheWay)
		}
		p.Delete, p.Remove = nil, nil
	}
	c := Changes{Write: p.Write, Mkdir: p.Make, Delete: slices.Sorted(slices.Values(slices.Concat(p.Replace, p.Delete, p.Clear, p.Remove))), LeftOut: leftOut, OutsideLinks: outside}
	switch {
	case s.o.DryRun:
	case s.upward:
		if err = s.push(ctx, p, from); err == nil && s.enter != nil {
			s.sent = from
		}
	default:
		err = s.pull(ctx, p, from)
	}
	return c, err
}

// leaveOutsideLinks takes links of the sandbox that lead out of the directory out of
// both trees; from here, those that only the sandbox has.
func (s *syncer) leaveOutsideLinks(remote, local listing) (left []string) {
	for name, e := range remote {
		_, here := local[name]
		if e.Mode&fs.ModeSymlink == 0 || !untar.Leads(name, e.Link) || s.upward && here {
			continue
		}
		delete(remote, name)
		if !s.upward {
			delete(local, name)
			left = append(left, name)
		}
	}
	slices.Sort(left)
	return left
}

// guard takes what must not arrive in a folder of this machine out of both trees,
// and returns what it was.
func guard(root *os.Root, remote, local listing) (leftOut []string) {
	g := glob.NewGuard(root, func(name string) { leftOut = append(leftOut, name) })
	keep := func(tree listing) {
		maps.DeleteFunc(tree, func(name string, e entry) bool { return !g.Keeps(name, e.Mode.IsDir()) })
	}
	keep(remote)
	g.LeftOut = nil // what is here only is nobody's news
	keep(local)
	slices.Sort(leftOut)
	return leftOut
}

func (s *syncer) closeRoot() {
	if s.root != nil {
		_ = s.root.Close() // nothing is written through it
	}
}

// forgetOutdated takes out of there the files that have changed here since they
// were uploaded: what the sandbox has of their times does not tell two changes
// within a second.
func (s *syncer) forgetOutdated(there, here listing) {
	for p, was := range s.sent {
		if e, ok := here[p]; ok && e.Mode.IsRegular() && there[p].Mode.IsRegular() && !e.ModTime.Equal(was.ModTime) {
			delete(there, p)
		}
	}
}

func below(dir string) func(string) bool {
	return func(name string) bool { return strings.HasPrefix(name, dir+"/") }
}

// sameTime reports whether two times are the same as far as both sides keep them:
// some keep whole seconds, the others microseconds at least.
func sameTime(a, b time.Time) bool {
	micros := func(t time.Time) int { return t.Nanosecond() / 1000 }
	return a.Unix() == b.Unix() && (micros(a) == micros(b) || micros(a) == 0 || micros(b) == 0)
}
