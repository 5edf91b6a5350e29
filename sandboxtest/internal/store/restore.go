package store

import (
	"fmt"
	"maps"
	"slices"
)

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
