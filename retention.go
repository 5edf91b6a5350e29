package sandbox

import (
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// Forever is the expiration of snapshots that are kept until they are deleted.
const Forever time.Duration = -1

// checkExpiration refuses an expiration that no snapshot can have.
func checkExpiration(field string, d time.Duration) error {
	if d == Forever {
		return nil
	}
	if err := checkDuration(field, d); err != nil {
		return err
	}
	if d > 0 && d < wire.MinExpiration {
		return invalid(field, "%v is below %v; use Forever to keep snapshots", d, wire.MinExpiration)
	}
	return nil
}

// expirationToWire returns the milliseconds of an expiration, which are zero for
// one that never happens, and nil for none.
func expirationToWire(d time.Duration) *wire.Duration {
	switch {
	case d == 0:
		return nil
	case d == Forever:
		d = 0
	}
	return wire.DurationPtr(&d)
}

func expirationFromWire(w *wire.Duration) time.Duration {
	switch d := w.Std(); {
	case d == nil:
		return 0
	case *d == 0:
		return Forever
	default:
		return *d
	}
}

// KeepLastSnapshots is a retention policy that keeps the last Count snapshots
// of a sandbox.
type KeepLastSnapshots struct {
	// Count is how many snapshots are kept.
	Count int
	// Expiration is how long these snapshots are kept; it may be [Forever]. Zero
	// means the sandbox's default.
	Expiration time.Duration
	// KeepEvicted lets older snapshots expire as usual. By default they are
	// deleted at once.
	KeepEvicted bool
}

func snapshotExpirationToWire(field string, d time.Duration) (*wire.Duration, error) {
	return expirationToWire(d), checkExpiration(field, d)
}

func (k *KeepLastSnapshots) toWire() *wire.KeepLastSnapshots {
	w := &wire.KeepLastSnapshots{Count: k.Count, Expiration: expirationToWire(k.Expiration)}
	if k.KeepEvicted {
		w.DeleteEvicted = new(false)
	}
	return w
}

func retentionToWire(field string, k *KeepLastSnapshots) (*wire.KeepLastSnapshots, error) {
	return k.toWire(), checkRetention(field, k)
}

// newRetentionToWire returns what an update sends: null for the zero value, which
// removes the policy.
func newRetentionToWire(field string, k *KeepLastSnapshots) (any, error) {
	if *k == (KeepLastSnapshots{}) {
		return nil, nil
	}
	// Said in full, so that it also ends what an earlier policy has set.
	w := k.toWire()
	w.DeleteEvicted = new(!k.KeepEvicted)
	return w, checkRetention(field, k)
}

func checkRetention(field string, k *KeepLastSnapshots) error {
	if k.Count < 1 || k.Count > wire.MaxKeptSnapshots {
		return invalid(field+".Count", "%d is outside 1 to %d", k.Count, wire.MaxKeptSnapshots)
	}
	return checkExpiration(field+".Expiration", k.Expiration)
}

func keepLastSnapshotsFromWire(k *wire.KeepLastSnapshots) *KeepLastSnapshots {
	if k == nil {
		return nil
	}
	return &KeepLastSnapshots{Count: k.Count, Expiration: expirationFromWire(k.Expiration), KeepEvicted: k.DeleteEvicted != nil && !*k.DeleteEvicted}
}
