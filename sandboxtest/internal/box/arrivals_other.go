//go:build !linux

package box

import "errors"

// arrivals is for Linux only.
type arrivals struct{}

func newArrivals([]*output) (*arrivals, error) { return nil, errors.ErrUnsupported }
func (*arrivals) close()                       {}
func (*arrivals) processExited()               {}
func (*arrivals) copy()                        {}
