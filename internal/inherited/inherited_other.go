//go:build !unix

package inherited

// passedOn are the descriptors that a new process would have: only those that it
// is given.
func passedOn() []int { return nil }
