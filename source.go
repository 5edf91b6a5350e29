package sandbox

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
)

// Source is where the files of a new sandbox come from.
type Source interface{ source() (any, error) }

func sourceToWire(field string, s Source) (any, error) {
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, invalid(field, "is a nil pointer")
	}
	return s.source()
}

// GitSource clones a repository. In a sandbox with a Runtime, the clone is the working
// directory itself. With an image, it is a folder of the working directory, with the
// repository's name.
type GitSource struct {
	// URL is the repository's https address, which the platform must be able to reach.
	// Addresses of ssh, such as git@github.com:a/b.git, and paths are refused. A user, a
	// password and a query in it are never shown.
	URL string `secret:"url"`
	// Username and Password are the credentials of a private repository; a
	// token is given as the password. They are never shown.
	Username string `secret:"value"`
	Password string `secret:"value"`
	// Depth limits the history to that many commits; zero fetches all of it.
	Depth int
	// Revision is a branch, tag or commit; empty means the default branch.
	Revision string
}

// Format prints the source without credentials, for every verb.
func (g GitSource) Format(f fmt.State, verb rune) { redact.Struct(f, verb, g) }

// MarshalJSON encodes the source without credentials.
func (g GitSource) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type     string `json:"type"`
		URL      string `json:"url"`
		Depth    int    `json:"depth,omitempty"`
		Revision string `json:"revision,omitempty"`
	}{"git", redact.URL(g.URL), g.Depth, g.Revision})
}

func (g GitSource) source() (any, error) {
	switch {
	case g.URL == "":
		return nil, invalid("Source.URL", "is empty; the address of a git repository is needed")
	case !strings.Contains(g.URL, "://"), strings.HasPrefix(g.URL, "ssh:"), strings.HasPrefix(g.URL, "file:"):
		return nil, invalid("Source.URL", "is not the https address of a repository; ssh and paths are not supported")
	case g.Depth < 0:
		return nil, invalid("Source.Depth", "%d is negative", g.Depth)
	case (g.Username == "") != (g.Password == ""):
		return nil, invalid("Source", "Username and Password go together; only one is given")
	}
	return struct {
		Type     string `json:"type"`
		URL      string `json:"url"`
		Username string `json:"username,omitempty"`
		Password string `json:"password,omitempty"`
		Depth    int    `json:"depth,omitempty"`
		Revision string `json:"revision,omitempty"`
	}{"git", g.URL, g.Username, g.Password, g.Depth, g.Revision}, nil
}

// TarballSource unpacks an archive that the platform downloads over http or
// https.
type TarballSource struct {
	// URL is the archive's address. A user, a password and the query, which may
	// be a signature, are never shown.
	URL string `secret:"url"`
}

// Format prints the source without credentials, for every verb.
func (t TarballSource) Format(f fmt.State, verb rune) { redact.Struct(f, verb, t) }

// MarshalJSON encodes the source without credentials.
func (t TarballSource) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type string `json:"type"`
		URL  string `json:"url"`
	}{"tarball", redact.URL(t.URL)})
}

func (t TarballSource) source() (any, error) {
	if t.URL == "" {
		return nil, invalid("Source.URL", "is empty; the address of a tarball is needed")
	}
	return struct {
		Type string `json:"type"`
		URL  string `json:"url"`
	}{"tarball", t.URL}, nil
}

// SnapshotSource starts a sandbox from a snapshot.
type SnapshotSource struct{ SnapshotID string }

func (s SnapshotSource) source() (any, error) {
	if s.SnapshotID == "" {
		return nil, invalid("Source.SnapshotID", "is empty; the ID of a snapshot is needed")
	}
	return struct {
		Type       string `json:"type"`
		SnapshotID string `json:"snapshotId"`
	}{"snapshot", s.SnapshotID}, nil
}
