package sandbox

import "time"

// SetHookLease shortens the lease of hooks for a process of a test.
func SetHookLease(d time.Duration) { hookLease = d }
