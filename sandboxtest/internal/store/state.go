package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

const (
	stateFile   = "state.json"
	machinesDir = "machines"
	// saveDelay combines changes that follow each other into one write.
	saveDelay = 50 * time.Millisecond
)

// State is the content of Options.Dir. It contains the environment of sandboxes, so only
// its owner may read the file. It contains no commands: those of an ended session can't
// be requested.
type State struct {
	Version int `json:"version"`
	// Kind is the kind of host that wrote the layers of the snapshots. Hosts of another
	// kind can't use them.
	Kind      string           `json:"kind"`
	Offset    time.Duration    `json:"clockOffset"`
	Sandboxes []sandboxRecord  `json:"sandboxes"`
	Sessions  []sessionRecord  `json:"sessions"`
	Snapshots []snapshotRecord `json:"snapshots"`
	Drives    []driveRecord    `json:"drives,omitempty"`
}

// The records are the parts of the objects that are saved.

type sandboxRecord struct {
	Key
	Settings        Settings  `json:"settings"`
	CreatedAt       time.Time `json:"createdAt"`
	UpdatedAt       time.Time `json:"updatedAt"`
	StatusUpdatedAt time.Time `json:"statusUpdatedAt"`
	CurrentSnapshot string    `json:"currentSnapshot,omitempty"`
	CurrentSession  string    `json:"currentSession"`
	// Past is the usage of its ended sessions.
	Past usage `json:"used"`
}

type sessionRecord struct {
	Key                                 // of its sandbox
	ID              string              `json:"id"`
	VCPUs           int                 `json:"vcpus"`
	Runtime         string              `json:"runtime"`
	SourceSnapshot  string              `json:"sourceSnapshot,omitempty"`
	Status          string              `json:"status"`
	Timeout         time.Duration       `json:"timeout"`
	Region          string              `json:"region"`
	Cwd             string              `json:"cwd"`
	Policy          *wire.NetworkPolicy `json:"networkPolicy,omitempty"` // nil was never set
	RequestedAt     time.Time           `json:"requestedAt"`
	StartedAt       time.Time           `json:"startedAt,omitzero"`
	RequestedStopAt time.Time           `json:"requestedStopAt,omitzero"`
	StoppedAt       time.Time           `json:"stoppedAt,omitzero"`
	AbortedAt       time.Time           `json:"abortedAt,omitzero"`
	SnapshottedAt   time.Time           `json:"snapshottedAt,omitzero"`
	UpdatedAt       time.Time           `json:"updatedAt"`
	Used            usage               `json:"used"` // once it has ended
	Taken           string              `json:"taken,omitempty"`
}

type snapshotRecord struct {
	Key                        // of the sandbox that it was made of
	ID         string          `json:"id"`
	Session    string          `json:"session"`
	Parent     string          `json:"parent,omitempty"`
	Method     string          `json:"method"`
	Layer      backend.LayerID `json:"layer,omitempty"`
	Size       int64           `json:"size"`
	Status     string          `json:"status"`
	CreatedAt  time.Time       `json:"createdAt"`
	UpdatedAt  time.Time       `json:"updatedAt"`
	LastUsedAt time.Time       `json:"lastUsedAt"`
	ExpiresAt  time.Time       `json:"expiresAt,omitzero"`
	// TTL is how long the snapshot is kept after its last use. Zero means forever.
	TTL time.Duration `json:"ttl,omitempty"`
	System
}

type driveRecord struct {
	Key
	ID        string    `json:"id"`
	Region    string    `json:"region"`
	MaxSize   int64     `json:"maxSizeBytes"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// Parent is the drive that it was forked from, Root the first of that line.
	Parent string `json:"parent,omitempty"`
	Root   string `json:"root,omitempty"`
}

// saver writes the state to Options.Dir. The store's lock guards its fields, except
// writing.
type saver struct {
	// loaded is set once the directory's content has been read. Nothing may be written
	// before.
	loaded bool
	wake   chan struct{}
	// changes is the number of changes so far, and saved is how many of them are saved.
	changes, saved uint64
	// removals remove the files of deleted snapshots and drives. They run only once the
	// saved state no longer names the files. Until then a crash would bring back the
	// previous state, which needs them.
	removals []func() error

	writing sync.Mutex // held while the file is written
}

// changedLocked records that something has changed and has to be saved.
func (st *Store) changedLocked() {
	st.saver.changes++
	select {
	case st.saver.wake <- struct{}{}:
	default:
	}
}

// saveChanges saves changes soon after they happen, until the server closes.
func (st *Store) saveChanges() {
	for {
		select {
		case <-st.saver.wake:
		case <-st.ctx.Done():
			return
		}
		select {
		case <-time.After(saveDelay):
		case <-st.ctx.Done():
			return
		}
		_ = st.Flush() // it logs its errors
	}
}

// Flush returns when all changes so far are saved. A change that can't be saved, for
// example because the disk is full, is saved with the next one.
func (st *Store) Flush() error {
	st.mu.Lock()
	want := st.saver.changes
	st.mu.Unlock()
	st.saver.writing.Lock()
	defer st.saver.writing.Unlock()
	st.mu.Lock()
	done := st.saver.saved >= want
	st.mu.Unlock()
	if done {
		return nil // another caller has saved them
	}
	err := st.saveUnderLock()
	if err != nil {
		st.opts.Log.Error("save the state", "error", err)
	}
	return err
}

// save writes the whole state, even if nothing has changed.
func (st *Store) save() error {
	st.saver.writing.Lock()
	defer st.saver.writing.Unlock()
	return st.saveUnderLock()
}

// saveUnderLock writes the state atomically, and then removes the layers that it no longer
// names. The caller holds saver.writing.
func (st *Store) saveUnderLock() error {
	st.mu.Lock()
	changes, removals := st.saver.changes, st.saver.removals
	st.saver.removals = nil
	var whole *State
	if st.opts.Dir != "" && st.saver.loaded {
		whole = st.stateLocked()
	}
	st.mu.Unlock()
	var err error
	if whole != nil {
		err = writeState(filepath.Join(st.opts.Dir, stateFile), whole)
	}
	st.mu.Lock()
	if err == nil {
		st.saver.saved = changes
	} else {
		st.saver.removals = append(removals, st.saver.removals...)
	}
	st.mu.Unlock()
	if err != nil {
		return err
	}
	for _, remove := range removals {
		if rerr := remove(); rerr != nil && !errors.Is(rerr, box.ErrNoLayer) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// stateVersion is the version of the file's format.
const stateVersion = 6

func writeState(name string, in *State) error {
	in.Version = stateVersion
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return box.WriteFile(name, append(data, '\n'), true)
}

// readState reads the state of an earlier server. It returns nil if there is none. It
// does not change a file that it can't read.
func readState(name string) (*State, error) {
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	in := new(State)
	if err := json.Unmarshal(data, in); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err)
	}
	if in.Version != stateVersion {
		return nil, fmt.Errorf("%s: version %d, want %d", name, in.Version, stateVersion)
	}
	return in, nil
}

// stateLocked returns the state to save. It omits deleted objects and those that are still
// being created.
func (st *Store) stateLocked() *State {
	out := &State{Kind: st.Host.Kind(), Offset: st.Clock.Offset()}
	for _, sb := range st.sandboxes {
		if !sb.creating {
			rec := sb.rec
			rec.Settings = rec.Settings.clone()
			out.Sandboxes = append(out.Sandboxes, rec)
		}
	}
	for _, sess := range st.sessions {
		if !sess.sb.deleted && !sess.sb.creating {
			out.Sessions = append(out.Sessions, sess.rec)
		}
	}
	for _, d := range st.drives {
		if !d.copying {
			out.Drives = append(out.Drives, d.rec)
		}
	}
	for _, sn := range st.snapshots {
		out.Snapshots = append(out.Snapshots, sn.rec)
	}
	return out
}

// checkDir returns an error if a directory has no state file, but contains files of another
// program or the files of snapshots or drives.
func checkDir(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, stateFile)); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		switch name := strings.TrimSuffix(e.Name(), backend.HalfWritten); name {
		case stateFile, authorityFile, machinesDir, "lost+found":
		default:
			return fmt.Errorf("%s holds %s, which is not the emulator's: use an empty directory", dir, e.Name())
		}
	}
	kept, err := box.HasContents(filepath.Join(dir, machinesDir))
	if err == nil && kept {
		err = fmt.Errorf("%s has the files of snapshots or drives, but no %s that says whose they are; nothing was changed: "+
			"put it back, or use another directory", dir, stateFile)
	}
	return err
}

// contents reads the state in Options.Dir, and returns the layers and drives that the host
// must have for it. The caller has locked the directory. contents ignores layers of another
// kind of host.
func (st *Store) contents(kind string) (want box.Contents, err error) {
	if st.earlier, err = readState(filepath.Join(st.opts.Dir, stateFile)); err != nil || st.earlier == nil {
		return want, err
	}
	if st.earlier.Kind == kind {
		want.Layers = st.earlier.layers()
	}
	for _, d := range st.earlier.Drives {
		want.Drives = append(want.Drives, d.ID)
	}
	return want, nil
}

// layers returns the layers of the snapshots.
func (in *State) layers() (ids []backend.LayerID) {
	for _, sn := range in.Snapshots {
		if sn.Status == snapshotCreated {
			ids = append(ids, sn.Layer)
		}
	}
	return ids
}

// Load restores the state of an earlier server. Sessions that the server could not stop
// were aborted. Nothing is saved before the earlier state is restored. Load then writes the
// state file, even for an empty state. If the file is missing later, the next server
// notices.
func (st *Store) Load(host string) error {
	st.routesHost = host
	if st.earlier != nil {
		if err := st.useEarlier(st.earlier); err != nil {
			return err
		}
	}
	st.mu.Lock()
	st.saver.loaded = true
	st.mu.Unlock()
	if err := st.save(); err != nil {
		return err
	}
	if st.opts.Dir != "" {
		st.background.Go(st.saveChanges) // ends with ctx
	}
	return nil
}

// useEarlier checks that the host can use the state of an earlier server, removes files
// that the state does not name, and restores it.
func (st *Store) useEarlier(in *State) error {
	layers := in.layers()
	if in.Kind != st.Host.Kind() {
		if len(layers) > 0 {
			return fmt.Errorf("%s has snapshots that were made in %s mode, which %s mode can't use: "+
				"request that mode, or use another directory", st.opts.Dir, in.Kind, st.Host.Kind())
		}
	} else if err := st.Host.KeepOnly(layers); err != nil {
		return err
	}
	drives := make([]string, 0, len(in.Drives))
	for _, d := range in.Drives {
		drives = append(drives, d.ID)
	}
	if err := st.Host.KeepDrives(drives); err != nil {
		return err
	}
	if st.opts.Start.IsZero() {
		st.Clock.Advance(in.Offset)
	}
	return st.restore(in)
}

// restore restores the state. The routes of its sandboxes get new addresses.
func (st *Store) restore(in *State) error {
	st.mu.Lock()
	err := st.restoreLocked(in)
	all := slices.Collect(maps.Values(st.sandboxes))
	st.mu.Unlock()
	for _, sb := range all {
		sb.op.Lock()
		if err == nil {
			err = sb.setPortsInOp(sb.rec.Settings.Ports)
		}
		sb.op.Unlock()
	}
	return err
}

func (st *Store) restoreLocked(in *State) error {
	for _, rec := range in.Drives {
		st.drives[rec.Key] = &drive{rec: rec}
	}
	for _, rec := range in.Snapshots {
		sn := &Snapshot{st: st, rec: rec}
		if rec.Status == snapshotCreated {
			sn.expireAtLocked(rec.ExpiresAt)
		}
		st.snapshots[rec.ID] = sn
	}
	for _, rec := range in.Sandboxes {
		st.sandboxes[rec.Key] = &Sandbox{st: st, rec: rec}
	}
	for _, rec := range in.Sessions {
		sb := st.sandboxes[rec.Key]
		if sb == nil {
			continue
		}
		sess := &Session{sb: sb, rec: rec, taken: st.snapshots[rec.Taken], Token: newToken(), changed: make(chan struct{})}
		if !sess.endedLocked() {
			sess.rec.Status, sess.rec.AbortedAt, sess.rec.StoppedAt = statusAborted, st.Clock.Now(), rec.UpdatedAt
		}
		st.sessions[rec.ID] = sess
		if sb.rec.CurrentSession == rec.ID {
			sb.current = sess
		}
	}
	for key, sb := range st.sandboxes {
		if sb.current == nil {
			clear(st.sandboxes) // so that Close does not try to end their sessions
			return fmt.Errorf("%s is damaged: sandbox %s has no session", stateFile, key.Name)
		}
	}
	return nil
}
