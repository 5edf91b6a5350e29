package sandbox

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
)

// MountMode is a way to mount a drive. The API may report others.
type MountMode string

const (
	// MountReadWrite lets the sandbox read and write the drive. Only one session at
	// a time can mount a drive so.
	MountReadWrite MountMode = "read-write"
	// MountSnapshot lets the sandbox read the drive's content as it was when the
	// session started. Any number of sessions can mount a snapshot, even while
	// another one writes. A drive that was never written to has none.
	MountSnapshot MountMode = "snapshot"
)

// Mount describes how a drive is mounted.
type Mount struct {
	// Drive is the drive's name.
	Drive string
	// Mode is how it is mounted; empty means [MountReadWrite].
	Mode MountMode

	// region is where the drive is, if that is known: options that ask for a
	// sandbox of another region are refused before a request.
	region string
}

// mountsToWire encodes the mounts of a sandbox in the given region, which is empty
// if none is given.
func mountsToWire(region string) func(field string, mounts map[string]Mount) (map[string]wire.Mount, error) {
	return func(field string, mounts map[string]Mount) (map[string]wire.Mount, error) {
		return encodeMounts(field, mounts, region)
	}
}

func encodeMounts(field string, mounts map[string]Mount, region string) (map[string]wire.Mount, error) {
	if len(mounts) > wire.MaxMounts {
		return nil, invalid(field, "%d drives are mounted; a sandbox can have at most %d", len(mounts), wire.MaxMounts)
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
			m.Mode = MountReadWrite
		case MountReadWrite, MountSnapshot:
		default:
			return nil, invalid(fmt.Sprintf("%s[%q].Mode", field, at), "%q is not %q or %q", m.Mode, MountReadWrite, MountSnapshot)
		}
		if m.Mode == MountReadWrite {
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
		out[at] = wire.Mount{Drive: m.Drive, Mode: string(m.Mode)}
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
		out[at] = Mount{Drive: m.Drive, Mode: MountMode(m.Mode)}
	}
	return out
}

// checkDriveName refuses names that no drive can have, among them those that
// would reach another route of the API.
func checkDriveName(field, name string) error {
	switch {
	case name == "":
		return invalid(field, "is empty; the name of a drive is needed")
	case len(name) > wire.MaxDriveName:
		return invalid(field, "has %d characters; the name of a drive has at most %d", len(name), wire.MaxDriveName)
	case !wire.PlainName(name, wire.MaxDriveName):
		return invalid(field, "%q can't be the name of a drive: letters, digits, - and _ are allowed", name)
	}
	return nil
}
