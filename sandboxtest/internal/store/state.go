package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
