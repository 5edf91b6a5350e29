package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/tarball"
)

// ChangedError reports files that were not copied unchanged: programs changed them during
// the copy, or they could not be read or written. All other files were copied. It unwraps
// to the errors of Unreadable and Unwritable.
type ChangedError struct {
	// Path is the directory that was copied. It is empty for CopyFS and WriteFiles.
	Path string
	// Changed lists the files and directories that were written to during the copy, by
	// their paths below Path; "." is the directory itself. The copy of such a file may mix
	// older and newer content. The copy of such a directory may lack new entries.
	Changed []string
	// Gone lists those that were removed, or replaced by a file of another kind, before
	// they could be read. The copy does not have them.
	Gone []string
	// Unreadable lists those that could not be read, with the reason. The copy has only
	// what was read before the error.
	Unreadable []*fs.PathError
	// Unwritable lists those that [FileSystem.DownloadDir] could not write because of what
	// is at the destination, such as a directory where a file must go, with the reason.
	Unwritable []*fs.PathError
}

// Error names the first files of each kind, and says how many more there are.
func (e *ChangedError) Error() string {
	withReasons := func(list []*fs.PathError) (names []string) {
		for _, u := range list {
			names = append(names, fmt.Sprintf("%s (%v)", u.Path, u.Err))
		}
		return names
	}
	var parts []string
	for _, list := range []struct {
		what  string
		names []string
	}{{"changed meanwhile", e.Changed}, {"removed meanwhile", e.Gone}, {"not readable", withReasons(e.Unreadable)}, {"not writable", withReasons(e.Unwritable)}} {
		if len(list.names) > 0 {
			parts = append(parts, list.what+": "+firstNames(list.names))
		}
	}
	from := ""
	if e.Path != "" {
		from = " of " + e.Path
	}
	return redact.Printable(fmt.Sprintf("sandbox: the copy%s is complete but for files that were %s", from, strings.Join(parts, "; ")))
}

// firstNames lists the first names.
func firstNames(names []string) string {
	const shown = 10
	more := ""
	if n := len(names) - shown; n > 0 {
		names, more = names[:shown], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ") + more
}

// Unwrap returns the errors of Unreadable and Unwritable.
func (e *ChangedError) Unwrap() []error {
	var errs []error
	for _, u := range slices.Concat(e.Unreadable, e.Unwritable) {
		errs = append(errs, u)
	}
	return errs
}

// copyReport collects what a copy leaves out and what it could not read. A
// goroutine of an upload that has ended may still write to it.
type copyReport struct {
	mu      sync.Mutex
	leftOut []string
	found   ChangedError
	named   map[string]bool // all noted names; true for a file that could not be written
}

// reset forgets an attempt.
func (r *copyReport) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leftOut, r.found, r.named = nil, ChangedError{}, nil
}

// addName notes a name, and reports whether it is new. The caller holds mu.
func (r *copyReport) addName(name string) bool {
	if _, named := r.named[name]; named {
		return false
	}
	if r.named == nil {
		r.named = make(map[string]bool)
	}
	r.named[name] = false
	return true
}

// addLeftOut notes a file of a kind that is not copied.
func (r *copyReport) addLeftOut(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.addName(name) {
		r.leftOut = append(r.leftOut, name)
	}
}

// addFault notes a file that was changed or removed during the copy, or could not be read.
func (r *copyReport) addFault(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.addName(name) {
		return
	}
	switch {
	case errors.Is(err, tarball.ErrChanged):
		r.found.Changed = append(r.found.Changed, name)
	case errors.Is(err, fs.ErrNotExist):
		r.found.Gone = append(r.found.Gone, name)
	default:
		r.found.Unreadable = append(r.found.Unreadable, &fs.PathError{Op: "read", Path: name, Err: withoutName(err)})
	}
}

// addUnwritable notes a file that could not be written.
func (r *copyReport) addUnwritable(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.addName(name) {
		r.named[name] = true
		r.found.Unwritable = append(r.found.Unwritable, &fs.PathError{Op: "write", Path: name, Err: withoutName(err)})
	}
}

// withoutName returns why a file could not be read or written, without its name.
func withoutName(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return le.Err
	}
	return err
}

// has reports whether a name was noted.
func (r *copyReport) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, noted := r.named[name]
	return noted
}

// isUnwritable reports whether a name was noted as one that could not be written.
func (r *copyReport) isUnwritable(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.named[name]
}

// addPackFault notes a file that the sandbox's tar could not pack unchanged.
func (r *copyReport) addPackFault(name string, f coreutils.PackFault) {
	switch f.Kind {
	case coreutils.Socket:
		r.addLeftOut(name)
	case coreutils.Gone:
		r.addFault(name, fs.ErrNotExist)
	case coreutils.Unreadable:
		r.addFault(name, f.Errno)
	default:
		r.addFault(name, tarball.ErrChanged)
	}
}

// callLeftOut calls f with each name that was left out.
func (r *copyReport) callLeftOut(f func(name string)) {
	if f == nil {
		return
	}
	r.mu.Lock()
	names := slices.Clone(r.leftOut)
	r.mu.Unlock()
	for _, name := range names {
		f(name)
	}
}

// err returns a [*ChangedError], or nil if every file could be read and none changed
// during the copy.
func (r *copyReport) err(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.named) == len(r.leftOut) {
		return nil
	}
	e := r.found
	e.Path = path
	return &e
}

// Progress is the state of a transfer.
type Progress struct {
	// Path is the path in the sandbox of the file that is being transferred.
	Path string
	// Done is the number of bytes transferred so far, of all files. It
	// decreases if a transfer is retried.
	Done int64
	// Total is the value of Done at the end, or -1 if it is not known.
	Total int64
}

// meter counts the bytes transferred. A nil meter counts nothing.
type meter struct {
	report      func(Progress)
	done, total int64
}

func newMeter(report func(Progress), total int64) *meter {
	if report == nil {
		return nil
	}
	return &meter{report: report, total: total}
}

// restart starts counting again for another attempt.
func (m *meter) restart() {
	if m != nil {
		m.done = 0
	}
}

func (m *meter) add(path string, n int) {
	if m != nil && n > 0 {
		m.done += int64(n)
		m.report(Progress{Path: path, Done: m.done, Total: m.total})
	}
}

// reader counts the bytes that are read from rc as progress of path.
func (m *meter) reader(path string, rc io.ReadCloser) io.ReadCloser {
	if m == nil {
		return rc
	}
	return &meteredReader{ReadCloser: rc, meter: m, path: path}
}

type meteredReader struct {
	io.ReadCloser
	meter *meter
	path  string
}

func (r *meteredReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.meter.add(r.path, n)
	return n, err
}
