package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Snapshot is a saved state of a sandbox's files. [SnapshotSource] makes new
// sandboxes from it. A Snapshot is safe for concurrent use.
type Snapshot struct {
	mu   sync.Mutex
	c    *Client // nil until needed, for handles from JSON
	data wire.Snapshot
}

// GetSnapshot looks a snapshot up by its ID. A missing one matches
// [ErrNotFound].
func (c *Client) GetSnapshot(ctx context.Context, id string) (*Snapshot, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	var answer wire.SnapshotAnswer
	if err := c.do(ctx, &api.Request{Op: api.GetSnapshot, Path: []string{id}}, &answer); err != nil {
		return nil, err
	}
	return &Snapshot{c: c, data: answer.Snapshot}, nil
}

// ID returns the snapshot's ID.
func (s *Snapshot) ID() string { return s.wire().ID }

// Status returns the snapshot's state as last heard of.
func (s *Snapshot) Status() SnapshotStatus { return SnapshotStatus(s.wire().Status) }

// Info returns what the API said of the snapshot in its last answer. It makes
// no request.
func (s *Snapshot) Info() SnapshotInfo {
	w := s.wire()
	return snapshotInfo(&w)
}

// String describes the handle in a few words.
func (s *Snapshot) String() string {
	w := s.wire()
	return fmt.Sprintf("snapshot %s (%s)", w.ID, w.Status)
}

// GoString is String: the handle's insides are of no use in a log.
func (s *Snapshot) GoString() string { return s.String() }

func (s *Snapshot) wire() wire.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data
}

// Attach makes a handle that came from JSON use c instead of [DefaultClient].
func (s *Snapshot) Attach(c *Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c = c
}

// Delete deletes the snapshot. Sandboxes that would resume from it can't any
// more; see [ErrSnapshotNotFound].
func (s *Snapshot) Delete(ctx context.Context) error {
	s.mu.Lock()
	c, id := s.c, s.data.ID
	s.mu.Unlock()
	if err := checkID(id); err != nil {
		return err
	}
	if c == nil {
		var err error
		if c, err = DefaultClient(); err != nil {
			return err
		}
	}
	var answer wire.SnapshotAnswer
	if err := c.do(ctx, &api.Request{Op: api.DeleteSnapshot, Path: []string{id}}, &answer); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer.Snapshot.ID != "" {
		s.data = answer.Snapshot
	} else {
		s.data.Status = string(SnapshotDeleted)
	}
	return nil
}

type serializedSnapshot struct {
	Snapshot wire.Snapshot `json:"snapshot"`
}

// MarshalJSON writes the handle in the JavaScript SDK's serialized form.
func (s *Snapshot) MarshalJSON() ([]byte, error) {
	return json.Marshal(serializedSnapshot{s.wire()})
}

// UnmarshalJSON revives a handle. It uses [DefaultClient] unless
// [Snapshot.Attach] says otherwise.
func (s *Snapshot) UnmarshalJSON(data []byte) error {
	var in serializedSnapshot
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.Snapshot.ID == "" {
		return errors.New("sandbox: JSON is not a serialized snapshot: snapshot.id is missing")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c, s.data = nil, in.Snapshot
	return nil
}
