package modeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-vercel/sandbox"
)

const (
	// piece is the length of the pieces that a FileWriter uploads. It uploads a piece when
	// more data follows.
	piece = 8 << 20
	// written is the length of the data before the pause.
	written = piece + 1
	// total is the length of all data.
	total = 13 << 20
)

// file changes a file and keeps its history.
func (w *world) file(ctx context.Context, s Step) error {
	name, fsys := fmt.Sprintf("f%d", s.File), w.box.FS()
	line := fmt.Sprintf("%d %s\n", w.n, strings.Repeat("x", s.Size))
	appended := func(data string) func(string) string {
		return func(old string) string { return strings.TrimPrefix(old, missing) + data }
	}
	become := func(data string) func(string) string { return func(string) string { return data } }
	var changes map[string]func(string) string
	var call func() error
	whole := true // no reader sees a partial change
	switch s.Kind {
	case Append, Truncate, Remove, Sweep: // the file must exist
		if slices.Contains(w.files.of(name), missing) {
			if err := w.same.FS().WriteFile(w.ctx, name, []byte(line), 0o644); err != nil {
				return err
			}
			w.files[name] = []string{line}
		}
	}
	switch s.Kind {
	case Append:
		changes = map[string]func(string) string{name: appended(line)}
		call = func() error { return fsys.AppendFile(ctx, name, []byte(line)) }
	case Upload:
		much := line + strings.Repeat("uploaded\n", 8000)
		changes = map[string]func(string) string{name: appended(much)}
		call = func() error { return fsys.AppendFile(ctx, name, []byte(much)) }
	case Appends:
		return w.together(ctx, s)
	case Write:
		data := strings.Repeat(line, total/len(line))
		changes = map[string]func(string) string{name: become(data)}
		call = func() error {
			f, err := fsys.Create(ctx, name, nil)
			if err != nil {
				return err
			}
			_, err = f.Write([]byte(data[:written]))
			if err == nil && s.Fault.On == Pause {
				if err := w.pause(); err != nil {
					return err
				}
			}
			if err == nil {
				_, err = f.Write([]byte(data[written:]))
			}
			return errors.Join(err, f.Close())
		}
	case Replace:
		changes, whole = map[string]func(string) string{name: become(line)}, false
		call = func() error { return fsys.WriteFile(ctx, name, []byte(line), 0o644) }
	case Truncate, Remove, Sweep:
		if s.Kind != Truncate {
			changes = map[string]func(string) string{name: become(missing)}
			call = func() error { return fsys.Remove(ctx, name) }
			if s.Kind == Sweep {
				call = func() error { return fsys.RemoveAll(ctx, name) }
			}
			break
		}
		changes = map[string]func(string) string{name: func(old string) string {
			return (old + strings.Repeat("\x00", s.Size))[:s.Size]
		}}
		call = func() error { return fsys.Truncate(ctx, name, int64(s.Size)) }
	case Rename, Copy:
		from, to := fmt.Sprintf("from%d", w.n), fmt.Sprintf("to%d", w.n)
		if err := w.same.FS().WriteFile(w.ctx, from, []byte(line), 0o644); err != nil {
			return err
		}
		w.files[from] = []string{line}
		changes = map[string]func(string) string{from: become(missing), to: become(line)}
		call = func() error { return fsys.Rename(ctx, from, to) }
		if s.Kind == Copy {
			delete(changes, from)
			name, whole = to, false
			call = func() error { return fsys.CopyFile(ctx, from, to) }
		}
	}
	w.pending = changes
	w.arm(s)
	err := call()
	w.net.disarm()
	if s.Kind == Write && err != nil && w.hasHappened(sandboxFaults...) && !errors.Is(err, fs.ErrNotExist) {
		w.changed(changes, false) // the written data may be lost with the session
		return nil
	}
	// A crash may have reverted the creation of the file, so that it does not exist.
	if s.Fault.What == Crashed && w.hasHappened(Crashed) && errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errMissing) {
		w.changed(changes, false)
		return nil
	}
	if err != nil && !w.permits(err) {
		return mustNotFail(err)
	}
	if err != nil && !whole {
		return w.reread(name)
	}
	// A crash after the change may have reverted it.
	w.changed(changes, err == nil && !(w.hasHappened(Crashed) && s.Fault.When != Before))
	return nil
}

// pause waits until a FileWriter's first piece is in its temporary file. It then triggers the
// fault.
func (w *world) pause() error {
	const size = `until stat -c %s .write-* 2>/dev/null | grep -qx "$0"; do sleep 0.1; done`
	if _, err := w.same.RunCommand(w.ctx, "sh", []string{"-c", size, fmt.Sprint(piece)}, &sandbox.CommandOptions{Timeout: stepTime}); err != nil {
		return err
	}
	w.net.triggerNow()
	return nil
}

// changed applies changes to the histories of files. If known is false, the changes may
// have happened or not.
func (w *world) changed(changes map[string]func(string) string, known bool) {
	for name, f := range changes {
		w.files.change(name, f, known)
	}
}

// reread replaces a file's history by its present content, after an operation that may
// leave any content.
func (w *world) reread(name string) error {
	if w.hasHappened(Deleted) {
		return nil
	}
	data, err := w.same.FS().ReadFile(w.ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte(missing), nil
	}
	w.files[name] = []string{string(data)}
	w.saved[name] = append(slices.Clone(w.saved.of(name)), string(data))
	return err
}

// together appends lines from several goroutines at once. Each line must be complete, and no
// line may be lost.
func (w *world) together(ctx context.Context, s Step) error {
	const writers, each = 4, 2
	name := fmt.Sprintf("new%d/lines", w.n)
	line := func(writer, i int) string {
		return fmt.Sprintf("%d-%d %s\n", writer, i, strings.Repeat(string(rune('a'+writer)), 20_000+s.Size))
	}
	w.arm(s)
	var group sync.WaitGroup
	var mu sync.Mutex
	failures := map[string]error{}
	for writer := range writers {
		group.Go(func() {
			for i := range each {
				err := w.box.FS().AppendFile(ctx, name, []byte(line(writer, i)))
				mu.Lock()
				failures[line(writer, i)] = err
				mu.Unlock()
			}
		})
	}
	group.Wait()
	w.net.disarm()
	unsure := map[string]bool{}
	for l, err := range failures {
		if err != nil && !w.permits(err) && !w.hasHappened(sandboxFaults...) {
			return mustNotFail(err)
		}
		unsure[l] = err != nil
	}
	if w.hasHappened(Deleted, Crashed) {
		return nil
	}
	data, err := w.same.FS().ReadFile(w.ctx, name)
	if err != nil && !(errors.Is(err, fs.ErrNotExist) && len(unsure) > 0) {
		return err
	}
	have := map[string]int{}
	for l := range strings.Lines(string(data)) {
		have[l]++
	}
	for writer := range writers {
		for i := range each {
			l := line(writer, i)
			if n := have[l]; n > 1 || n == 0 && !unsure[l] {
				return fmt.Errorf("no error, but the line %.5q was appended %d times", l, n)
			}
			delete(have, l)
		}
	}
	return onlyIf(len(have) == 0, "%d lines are torn", len(have))
}

// read reads a file and compares it with the contents that it may have.
func (w *world) read(ctx context.Context, s Step) error {
	name, fsys := fmt.Sprintf("known%d", w.n), w.box.FS()
	want := strings.Repeat("known\n", s.Size)
	if err := w.same.FS().WriteFile(w.ctx, name, []byte(want), 0o644); err != nil {
		return err
	}
	w.pending = nil
	w.files[name] = []string{want}
	w.arm(s)
	data, err := fsys.ReadFile(ctx, name)
	gone := w.hasHappened(Crashed, Deleted)
	if err == nil && string(data) != want {
		return fmt.Errorf("no error, but %d of %d bytes", len(data), len(want))
	}
	// If the response breaks off while the caller reads the file, it gets an error, and
	// must read the file again.
	brokeOff := s.Fault.What == Cut || s.Fault.What == Clean || s.Fault.When == Within
	if err != nil && !gone && !w.permits(err) && !(brokeOff && w.net.hasHit(w.active, Fetched)) {
		return mustNotFail(err)
	}
	info, err := fsys.Stat(ctx, name)
	gone = gone || w.hasHappened(Crashed, Deleted)
	if err != nil && !gone && !w.permits(err) {
		return mustNotFail(err)
	}
	if err == nil && info.Size() != int64(len(want)) {
		return fmt.Errorf("Stat returned a size of %d instead of %d bytes", info.Size(), len(want))
	}
	entries, err := fsys.ReadDir(ctx, ".")
	w.net.disarm()
	gone = gone || w.hasHappened(Crashed, Deleted)
	if err != nil && !gone && !w.permits(err) {
		return mustNotFail(err)
	}
	there := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	return onlyIf(err != nil || gone || there, "%s is not listed", name)
}

// lock uses a directory as a lock. If Mkdir reports that the directory exists, the same call
// must not have created it.
func (w *world) lock(ctx context.Context, s Step) error {
	name := fmt.Sprintf("lock%d", w.n)
	w.arm(s)
	err := w.box.FS().Mkdir(ctx, name, 0o755)
	w.net.disarm()
	if errors.Is(err, fs.ErrExist) {
		return errors.New("the call itself has made the directory")
	}
	if err != nil && !w.permits(err) {
		return mustNotFail(err)
	}
	if w.hasHappened(Crashed, Deleted) {
		return nil
	}
	there, lookErr := w.same.FS().Exists(w.ctx, name)
	if lookErr != nil {
		return lookErr
	}
	return onlyIf(err != nil || there, "no error, but the directory is missing")
}

// link creates directories, links and a temporary directory, and changes modes.
func (w *world) link(ctx context.Context, s Step) error {
	dir, fsys := fmt.Sprintf("linked%d", w.n), w.box.FS()
	var temporary string
	w.arm(s)
	for _, call := range []func() error{
		func() error { return fsys.MkdirAll(ctx, dir+"/a/b", 0o750) },
		func() error { return fsys.Symlink(ctx, "b", dir+"/a/link") },
		func() error { return fsys.Chmod(ctx, dir+"/a/link", 0o700) },
		func() error { return fsys.Chown(ctx, dir+"/a/b", -1, -1) },
		func() (err error) { temporary, err = fsys.MkdirTemp(ctx, dir, "t*"); return err },
	} {
		// After an error or a crash, the files that later calls need may be missing.
		if err := call(); err != nil {
			w.net.disarm()
			return onlyIf(w.permits(err) || w.hasHappened(Crashed, Deleted), "the call must not fail: %v", err)
		}
	}
	w.net.disarm()
	if w.hasHappened(Crashed, Deleted) {
		return nil
	}
	for name, mode := range map[string]fs.FileMode{dir + "/a/b": fs.ModeDir | 0o700, dir + "/a/link": fs.ModeDir | 0o700, temporary: fs.ModeDir | 0o700} {
		info, err := w.same.FS().Stat(w.ctx, name)
		if err != nil {
			return err
		}
		if info.Mode() != mode {
			return fmt.Errorf("no error, but the mode of %s is %v", name, info.Mode())
		}
	}
	return nil
}

// tree uploads a directory and downloads it again.
func (w *world) tree(ctx context.Context, s Step) error {
	tmp, err := os.MkdirTemp("", "modeltest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	want := map[string][]byte{"a": bytes.Repeat([]byte("a"), s.Size), "sub/b": bytes.Repeat([]byte("b"), 100*s.Size), "sub/c": nil}
	for name, data := range want {
		path := filepath.Join(tmp, "up", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o600)); err != nil {
			return err
		}
	}
	dir := fmt.Sprintf("tree%d", w.n)
	w.arm(s)
	if s.Size%2 == 0 {
		err = w.box.FS().UploadDir(ctx, filepath.Join(tmp, "up"), dir, nil)
	} else {
		err = w.box.FS().CopyFS(ctx, dir, os.DirFS(filepath.Join(tmp, "up")), nil)
	}
	if err == nil && !w.hasHappened(Crashed) {
		err = w.box.FS().DownloadDir(ctx, dir, filepath.Join(tmp, "down"), nil)
	}
	if err == nil && !w.hasHappened(Crashed) { // upload again, over the existing files
		err = w.box.FS().DownloadFile(ctx, dir+"/sub/b", filepath.Join(tmp, "down/sub/b"), nil)
	}
	w.net.disarm()
	if w.hasHappened(Crashed) {
		return nil
	}
	if err != nil {
		if w.permits(err) || w.hasHappened(sandboxFaults...) {
			return nil
		}
		return mustNotFail(err)
	}
	for name, data := range want {
		got, err := os.ReadFile(filepath.Join(tmp, "down", name))
		if err != nil || !bytes.Equal(got, data) {
			return fmt.Errorf("the downloaded %s has %d of %d bytes: %w", name, len(got), len(data), err)
		}
	}
	return nil
}
