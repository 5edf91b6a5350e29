package sandboxtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

const (
	stateFile    = "state.json"
	stateVersion = 1
	// saveDelay gathers changes that come together into one write.
	saveDelay = 50 * time.Millisecond
)

// state is what Options.Dir keeps. It holds the environment of sandboxes, so
// that its file is for its owner alone. Commands are not in it: those of an
// ended session can't be asked for.
type state struct {
	Version   int             `json:"version"`
	Offset    time.Duration   `json:"clockOffset"`
	Sandboxes []sandboxState  `json:"sandboxes"`
	Sessions  []sessionState  `json:"sessions"`
	Snapshots []snapshotState `json:"snapshots"`
}

type sandboxState struct {
	Project         string    `json:"project"`
	Name            string    `json:"name"`
	Settings        settings  `json:"settings"`
	CreatedAt       time.Time `json:"createdAt"`
	UpdatedAt       time.Time `json:"updatedAt"`
	StatusUpdatedAt time.Time `json:"statusUpdatedAt"`
	CurrentSnapshot string    `json:"currentSnapshot,omitempty"`
	CurrentSession  string    `json:"currentSession"`
	Used            usage     `json:"used"`
}

type sessionState struct {
	Project         string             `json:"project"`
	Name            string             `json:"name"`
	ID              string             `json:"id"`
	VCPUs           int                `json:"vcpus"`
	Runtime         string             `json:"runtime"`
	SourceSnapshot  string             `json:"sourceSnapshot,omitempty"`
	Status          string             `json:"status"`
	Timeout         time.Duration      `json:"timeout"`
	Policy          wire.NetworkPolicy `json:"networkPolicy"`
	RequestedAt     time.Time          `json:"requestedAt"`
	StartedAt       time.Time          `json:"startedAt,omitzero"`
	RequestedStopAt time.Time          `json:"requestedStopAt,omitzero"`
	StoppedAt       time.Time          `json:"stoppedAt,omitzero"`
	AbortedAt       time.Time          `json:"abortedAt,omitzero"`
	SnapshottedAt   time.Time          `json:"snapshottedAt,omitzero"`
	UpdatedAt       time.Time          `json:"updatedAt"`
	Used            usage              `json:"used"`
	Taken           string             `json:"taken,omitempty"`
}

type snapshotState struct {
	Project    string      `json:"project"`
	Name       string      `json:"name"`
	ID         string      `json:"id"`
	Session    string      `json:"session"`
	Parent     string      `json:"parent,omitempty"`
	Method     string      `json:"method"`
	Layer      box.LayerID `json:"layer,omitempty"`
	Size       int64       `json:"size"`
	Status     string      `json:"status"`
	CreatedAt  time.Time   `json:"createdAt"`
	UpdatedAt  time.Time   `json:"updatedAt"`
	LastUsedAt time.Time   `json:"lastUsedAt"`
	ExpiresAt  time.Time   `json:"expiresAt,omitzero"`
	Slides     bool        `json:"slides,omitempty"`
}

// changedLocked notes that there is something to save. The store's lock is
// held.
func (st *store) changedLocked() {
	select {
	case st.saving <- struct{}{}:
	default:
	}
}

// saveChanges saves until the server closes.
func (st *store) saveChanges() {
	for {
		select {
		case <-st.saving:
		case <-st.s.ctx.Done():
			return
		}
		select {
		case <-time.After(saveDelay):
		case <-st.s.ctx.Done():
			return
		}
		if err := st.save(); err != nil {
			st.s.opts.Logger.Error("save", "error", err)
		}
	}
}

// save writes the state in one step.
func (st *store) save() error {
	if st.s.opts.Dir == "" {
		return nil
	}
	data, err := json.Marshal(st.state())
	if err != nil {
		return err
	}
	name := filepath.Join(st.s.opts.Dir, stateFile)
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func (st *store) state() *state {
	st.mu.Lock()
	defer st.mu.Unlock()
	out := &state{Version: stateVersion, Offset: st.s.clock.Offset()}
	for key, sb := range st.sandboxes {
		out.Sandboxes = append(out.Sandboxes, sandboxState{
			Project: key.project, Name: key.name, Settings: sb.settings.clone(),
			CreatedAt: sb.createdAt, UpdatedAt: sb.updatedAt, StatusUpdatedAt: sb.statusUpdatedAt,
			CurrentSnapshot: sb.currentSnapshot, CurrentSession: sb.current.id, Used: sb.past,
		})
	}
	for _, sess := range st.sessions {
		if sess.sb.deleted {
			continue
		}
		s := sessionState{
			Project: sess.sb.key.project, Name: sess.sb.key.name, ID: sess.id, VCPUs: sess.vcpus,
			Runtime: sess.runtime, SourceSnapshot: sess.sourceSnapshot, Status: sess.status,
			Timeout: sess.timeout, Policy: sess.policy, RequestedAt: sess.requestedAt,
			StartedAt: sess.startedAt, RequestedStopAt: sess.requestedStopAt, StoppedAt: sess.stoppedAt,
			AbortedAt: sess.abortedAt, SnapshottedAt: sess.snapshottedAt, UpdatedAt: sess.updatedAt, Used: sess.used,
		}
		if sess.taken != nil {
			s.Taken = sess.taken.id
		}
		out.Sessions = append(out.Sessions, s)
	}
	for _, sn := range st.snapshots {
		out.Snapshots = append(out.Snapshots, snapshotState{
			Project: sn.key.project, Name: sn.key.name, ID: sn.id, Session: sn.session, Parent: sn.parent,
			Method: sn.method, Layer: sn.layer, Size: sn.size, Status: sn.status, CreatedAt: sn.createdAt,
			UpdatedAt: sn.updatedAt, LastUsedAt: sn.lastUsedAt, ExpiresAt: sn.expiresAt, Slides: sn.slides,
		})
	}
	return out
}

// load takes up what an earlier server has left in Options.Dir. Sessions that
// it had no time to stop were aborted.
func (s *Server) load() error {
	if s.opts.Dir == "" {
		return nil
	}
	name := filepath.Join(s.opts.Dir, stateFile)
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	var in state
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if in.Version != stateVersion {
		return fmt.Errorf("%s: version %d, want %d", name, in.Version, stateVersion)
	}
	if s.opts.Start.IsZero() {
		s.clock.Advance(in.Offset)
	}
	return s.store.restore(&in)
}

func (st *store) restore(in *state) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, x := range in.Snapshots {
		sn := &snapshot{
			s: st.s, id: x.ID, key: sandboxKey{x.Project, x.Name}, session: x.Session, parent: x.Parent,
			method: x.Method, layer: x.Layer, size: x.Size, status: x.Status, createdAt: x.CreatedAt,
			updatedAt: x.UpdatedAt, lastUsedAt: x.LastUsedAt, slides: x.Slides,
		}
		if sn.status == snapshotCreated && !st.s.host.HasLayer(sn.layer) {
			sn.status = snapshotDeleted // made in another mode
		}
		if sn.expiresAt = x.ExpiresAt; sn.status == snapshotCreated {
			sn.expireAt(x.ExpiresAt)
		}
		st.snapshots[sn.id] = sn
	}
	for _, x := range in.Sandboxes {
		key := sandboxKey{x.Project, x.Name}
		st.sandboxes[key] = &namedSandbox{
			s: st.s, key: key, settings: x.Settings, createdAt: x.CreatedAt, updatedAt: x.UpdatedAt,
			statusUpdatedAt: x.StatusUpdatedAt, currentSnapshot: x.CurrentSnapshot, past: x.Used,
		}
	}
	current := make(map[string]bool)
	for _, x := range in.Sandboxes {
		current[x.CurrentSession] = true
	}
	for _, x := range in.Sessions {
		sb := st.sandboxes[sandboxKey{x.Project, x.Name}]
		if sb == nil {
			continue
		}
		sess := &session{
			sb: sb, id: x.ID, vcpus: x.VCPUs, runtime: x.Runtime, sourceSnapshot: x.SourceSnapshot,
			status: x.Status, timeout: x.Timeout, policy: x.Policy, requestedAt: x.RequestedAt,
			startedAt: x.StartedAt, requestedStopAt: x.RequestedStopAt, stoppedAt: x.StoppedAt,
			abortedAt: x.AbortedAt, snapshottedAt: x.SnapshottedAt, updatedAt: x.UpdatedAt, used: x.Used,
			taken: st.snapshots[x.Taken], token: newToken(), changed: make(chan struct{}),
		}
		if !sess.ended() {
			sess.status, sess.abortedAt, sess.stoppedAt = statusAborted, st.s.clock.Now(), x.UpdatedAt
		}
		st.sessions[sess.id] = sess
		if current[sess.id] {
			sb.current = sess
		}
	}
	return st.restoreRoutes()
}

// restoreRoutes opens the routes of restored sandboxes, which get new
// addresses. The store's lock is held, and let go meanwhile.
func (st *store) restoreRoutes() error {
	var all []*namedSandbox
	for key, sb := range st.sandboxes {
		if sb.current == nil { // a damaged file
			delete(st.sandboxes, key)
			continue
		}
		all = append(all, sb)
	}
	st.mu.Unlock()
	defer st.mu.Lock()
	for _, sb := range all {
		if err := sb.setPorts(sb.settings.Ports); err != nil {
			return err
		}
	}
	return nil
}
