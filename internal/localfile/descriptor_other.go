//go:build !unix

package localfile

import (
	"errors"
	"os"
)

func openDescriptor(_ int, name string) (*os.File, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: errors.ErrUnsupported}
}
