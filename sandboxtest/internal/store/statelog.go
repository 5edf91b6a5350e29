package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

const (
	stateVersion = 4
	// wholeVersion had one line, which was written anew for each change.
	wholeVersion = 3
	// minGrowth is how much is added to the file at least before it is written
	// anew; after that it is as much as it began with.
	minGrowth = 1 << 20
)

// stateFrame is a line of the file: the whole state in the first one, and in
// each later one what has changed since. A line is on the disk before anybody
// learns of the change.
type stateFrame struct {
	// Version is that of the file, in its first line.
	Version int `json:"version,omitempty"`
	// Sum is the SHA-256 of State, byte for byte.
	Sum   string          `json:"sha256"`
	State json.RawMessage `json:"state"`
}

func newFrame(version int, in *State) ([]byte, error) {
	data, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	line, err := json.Marshal(stateFrame{version, hex.EncodeToString(sum[:]), data})
	return append(line, '\n'), err
}

func (f *stateFrame) read(line []byte) (*State, error) {
	if err := json.Unmarshal(line, f); err != nil {
		return nil, err
	}
	if f.Version != 0 && f.Version != stateVersion && f.Version != wholeVersion {
		return nil, fmt.Errorf("version %d, want %d", f.Version, stateVersion)
	}
	if sum := sha256.Sum256(f.State); hex.EncodeToString(sum[:]) != f.Sum {
		return nil, errors.New("its checksum is wrong")
	}
	in := new(State)
	return in, json.Unmarshal(f.State, in)
}

// stateLog is the file that changes are added to.
type stateLog struct {
	name       string
	file       *os.File // nil has to be written anew
	size, base int64    // what is whole of it, and its first line
}

// rewrite makes a file of the whole state in one step.
func (l *stateLog) rewrite(whole *State) error {
	line, err := newFrame(stateVersion, whole)
	if err != nil {
		return err
	}
	if err := errors.Join(l.close(), box.WriteFile(l.name, line, true)); err != nil {
		return err
	}
	l.size, l.base = int64(len(line)), int64(len(line))
	l.file, err = os.OpenFile(l.name, os.O_WRONLY, 0)
	return err
}

// add adds a line. If that fails nothing of it stays, or the file is written
// anew by the next change.
func (l *stateLog) add(changes *State) error {
	line, err := newFrame(0, changes)
	if err != nil {
		return err
	}
	if _, err = l.file.WriteAt(line, l.size); err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		if cut := errors.Join(l.file.Truncate(l.size), l.file.Sync()); cut != nil {
			err = errors.Join(err, cut, l.close())
		}
		return err
	}
	l.size += int64(len(line))
	return nil
}

// full reports whether it is time to write the file anew.
func (l *stateLog) full() bool { return l.file == nil || l.size-l.base > max(minGrowth, l.base) }

func (l *stateLog) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// ReadState reads what an earlier server has left, nil when there is nothing.
// What can't be read is left as it is. The last line may be half of one that
// was being written when that server ended, and counts for nothing then.
func ReadState(name string) (*State, error) {
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var whole *State
	for number := 1; len(data) > 0; number++ {
		line, rest, ended := bytes.Cut(data, []byte("\n"))
		data = rest
		var frame stateFrame
		in, err := frame.read(line)
		if err != nil && whole != nil && !ended {
			if _, other := new(stateFrame).read(line[:len(line)-1]); other != nil {
				break // it is not a line whose end was changed
			}
		}
		switch {
		case err != nil && frame.Version != 0 && frame.Version != stateVersion && frame.Version != wholeVersion:
			return nil, fmt.Errorf("%s: %w", name, err)
		case err == nil && (frame.Version == 0) != (whole != nil):
			err = errors.New("it is out of order")
		}
		if err != nil {
			return nil, fmt.Errorf("%s is damaged: line %d: %w", name, number, err)
		}
		if whole == nil {
			whole = in
		} else {
			whole.apply(in)
		}
	}
	if whole == nil {
		return nil, fmt.Errorf("%s is damaged: it is empty", name)
	}
	return whole, nil
}

// stateChanges is what has changed since the last line.
type stateChanges struct {
	// dirty are sandboxes, sessions, snapshots and drives.
	dirty map[any]bool
	// gone are the sandboxes, with their sessions, and the drives that were
	// deleted. What has taken their names is among the dirty ones.
	goneSandboxes, goneDrives map[Key]bool
}

func newStateChanges() *stateChanges {
	return &stateChanges{make(map[any]bool), make(map[Key]bool), make(map[Key]bool)}
}

// note adds objects that have changed; those that were deleted say so.
func (c *stateChanges) note(objects []any) {
	for _, o := range objects {
		switch o := o.(type) {
		case *Sandbox:
			if o.deleted {
				c.goneSandboxes[o.key] = true
			}
		case *drive:
			if o.deleted {
				c.goneDrives[o.key] = true
			}
		}
		c.dirty[o] = true
	}
}

// add takes the changes of another, which were before.
func (c *stateChanges) add(before *stateChanges) {
	for o := range before.dirty {
		c.dirty[o] = true
	}
	for key := range before.goneSandboxes {
		c.goneSandboxes[key] = true
	}
	for key := range before.goneDrives {
		c.goneDrives[key] = true
	}
}

// stateOfLocked describes what has changed.
func (st *Store) stateOfLocked(c *stateChanges) *State {
	out := &State{Kind: st.Host.Kind(), Offset: st.Clock.Offset()}
	for key := range c.goneSandboxes {
		out.GoneSandboxes = append(out.GoneSandboxes, goneState(key))
	}
	for key := range c.goneDrives {
		out.GoneDrives = append(out.GoneDrives, goneState(key))
	}
	for o := range c.dirty {
		switch o := o.(type) {
		case *Sandbox:
			out.addSandboxLocked(o)
		case *Session:
			out.addSessionLocked(o)
		case *Snapshot:
			out.addSnapshotLocked(o)
		case *drive:
			out.addDriveLocked(o)
		}
	}
	return out
}

// goneState names what was deleted.
type goneState struct {
	Project string `json:"project"`
	Name    string `json:"name"`
}

// apply takes up later changes.
func (in *State) apply(later *State) {
	in.Offset = later.Offset
	for _, g := range later.GoneSandboxes {
		in.Sandboxes = without(in.Sandboxes, func(x sandboxState) bool { return x.Project == g.Project && x.Name == g.Name })
		in.Sessions = without(in.Sessions, func(x sessionState) bool { return x.Project == g.Project && x.Name == g.Name })
	}
	for _, g := range later.GoneDrives {
		in.Drives = without(in.Drives, func(x driveState) bool { return x.Project == g.Project && x.Name == g.Name })
	}
	in.Sandboxes = latest(in.Sandboxes, later.Sandboxes, func(x sandboxState) any { return Key{x.Project, x.Name} })
	in.Sessions = latest(in.Sessions, later.Sessions, func(x sessionState) any { return x.ID })
	in.Snapshots = latest(in.Snapshots, later.Snapshots, func(x snapshotState) any { return x.ID })
	in.Drives = latest(in.Drives, later.Drives, func(x driveState) any { return Key{x.Project, x.Name} })
}

// without leaves elements out.
func without[T any](all []T, gone func(T) bool) []T { return slices.DeleteFunc(all, gone) }

// latest puts later elements in the places of those with the same key.
func latest[T any](all, later []T, key func(T) any) []T {
	if len(later) == 0 {
		return all
	}
	at := make(map[any]int, len(all))
	for i, x := range all {
		at[key(x)] = i
	}
	for _, x := range later {
		if i, there := at[key(x)]; there {
			all[i] = x
		} else {
			at[key(x)] = len(all)
			all = append(all, x)
		}
	}
	return all
}
