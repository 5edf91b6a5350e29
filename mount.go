package sandbox

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
)

// The ways to mount a drive.
const (
	mountReadWrite = "read-write"
	mountSnapshot  = "snapshot"
)

// Mount describes how a drive is mounted.
type Mount struct {
	// Drive is the drive's name.
	Drive string
	// Mode is how it is mounted. With "read-write", which is the default, the
	// sandbox can read and write the drive; only one session at a time can mount
	// it so. With "snapshot" it can read the drive's content as it was when the
	// session started. Any number of sessions can mount a snapshot, even while
	// another one writes. A drive that was never written to has none.
	Mode string

	// region is where the drive is, if that is known: options that ask for a
	// sandbox of another region are refused before a request.
	region string
}

// maxMounts is the number of drives that a sandbox can have.
const maxMounts = 4

// mountsToWire checks mounts for a sandbox in the given region, which is empty
// if none is given, and returns their request form. Nil stays nil and is not
// sent.
func mountsToWire(mounts map[string]Mount, region string) (map[string]wire.Mount, error) {
	if mounts == nil {
		return nil, nil
	}
	const field = "Mounts"
	if len(mounts) > maxMounts {
		return nil, invalid(field, "%d drives are mounted; a sandbox can have at most %d", len(mounts), maxMounts)
	}
	out := make(map[string]wire.Mount, len(mounts))
	cleaned := map[string]string{}
	writer := map[string]string{}
	regionOf := "the sandbox" // and not yet a drive
	for _, at := range slices.Sorted(maps.Keys(mounts)) {
		m := mounts[at]
		if err := checkText(field, at); err != nil {
			return nil, err
		}
		clean := path.Clean(at)
		if !strings.HasPrefix(at, "/") || clean == "/" {
			return nil, invalid(field, "%q is not the absolute path of a directory below /", at)
		}
		for other, written := range cleaned {
			if clean == other || strings.HasPrefix(clean, other+"/") || strings.HasPrefix(other, clean+"/") {
				return nil, invalid(field, "%q and %q overlap", written, at)
			}
		}
		cleaned[clean] = at
		if err := checkDriveName(fmt.Sprintf("%s[%q].Drive", field, at), m.Drive); err != nil {
			return nil, err
		}
		switch m.Mode {
		case "":
			m.Mode = mountReadWrite
		case mountReadWrite, mountSnapshot:
		default:
			return nil, invalid(fmt.Sprintf("%s[%q].Mode", field, at), "%q is not %q or %q", m.Mode, mountReadWrite, mountSnapshot)
		}
		if m.Mode == mountReadWrite {
			if other, twice := writer[m.Drive]; twice {
				return nil, invalid(field, "drive %q is mounted read-write at %q and at %q; it can be only once", m.Drive, other, at)
			}
			writer[m.Drive] = at
		}
		switch {
		case m.region == "":
		case region == "":
			region = m.region // the others have to be there too
			regionOf = fmt.Sprintf("drive %q", m.Drive)
		case m.region != region:
			return nil, invalid(fmt.Sprintf("%s[%q]", field, at), "drive %q is in region %q, %s in %q; a sandbox and its drives must be in the same region", m.Drive, m.region, regionOf, region)
		}
		out[at] = wire.Mount{Drive: m.Drive, Mode: m.Mode}
	}
	return out, nil
}

// mountsFromWire converts the mounts of a response. An unknown mode is kept.
func mountsFromWire(mounts map[string]wire.Mount) map[string]Mount {
	if mounts == nil {
		return nil
	}
	out := make(map[string]Mount, len(mounts))
	for at, m := range mounts {
		out[at] = Mount{Drive: m.Drive, Mode: m.Mode}
	}
	return out
}

// maxDriveName is the maximum length of a drive's name.
const maxDriveName = 64

// checkDriveName refuses names that no drive can have, among them those that
// would reach another route of the API.
func checkDriveName(field, name string) error {
	switch {
	case name == "":
		return invalid(field, "is empty; the name of a drive is needed")
	case len(name) > maxDriveName:
		return invalid(field, "has %d characters; the name of a drive has at most %d", len(name), maxDriveName)
	case !plainName(name):
		return invalid(field, "%q can't be the name of a drive: letters, digits, - and _ are allowed", name)
	}
	return nil
}
