package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// version returns a short hash of the version, which is part of the sandboxes' names.
func (o *Options) version() string {
	sum := sha256.Sum256([]byte(o.Version))
	return hex.EncodeToString(sum[:4])
}

// namePrefix returns the prefix of the names of this version's sandboxes.
func (o *Options) namePrefix() string { return o.Name + "-" + o.version() + "-" }

// isOwnVersion reports whether the sandbox of that name is of this pool's version.
func (p *Pool) isOwnVersion(name string) bool { return strings.HasPrefix(name, p.prefix) }
