//go:build !linux

package untar

import (
	"errors"
	"os"
)

// setCapability is for Linux only.
func setCapability(*os.File, string) error { return errors.ErrUnsupported }
