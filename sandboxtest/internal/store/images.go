package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

const (
	// managedPrefix is the prefix of the service's own images.
	managedPrefix = "vercel/sandbox/"
	DefaultImage  = managedPrefix + "universal"
	// DefaultRuntime is the runtime of sandboxes that the v2 API creates without a
	// runtime or an image. Sandboxes with an image report it, too.
	DefaultRuntime = "node22"
	Architecture   = "amd64"
	Arm64          = "arm64"
)

// managedImages are the service's own images, below managedPrefix. They use the machine's
// programs, with the user and the directories of an image.
var managedImages = []string{"universal", "node:22", "node:24", "node:26", "python:3.14", "ubuntu", "arch"}

// validImage is compiled at its first use, because its repetitions would add a
// millisecond to the start of every process.
var validImage = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]+([._/-][a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
})

var errImageNotFound = reply.NotFound("Image not found.")

// reference is a parsed image name.
type reference struct{ repository, tag, digest string }

// parseReference parses an image name of a request.
func parseReference(image string) (reference, error) {
	if len(image) > 512 || !validImage().MatchString(image) {
		return reference{}, reply.BadRequest("Invalid image reference: %.512s", image)
	}
	name, digest, _ := strings.Cut(image, "@sha256:")
	repository, tag, _ := strings.Cut(name, ":")
	tag = cmp.Or(tag, "latest")
	return reference{repository, tag, digest}, nil
}

// name returns the image name without its digest.
func (r reference) name() string { return r.repository + ":" + r.tag }

// pinned returns the image with its digest, as the service shows it.
func (r reference) pinned() string { return r.repository + "@sha256:" + r.digest }

// managed reports whether the image is one of the service's own.
func (r reference) managed() bool {
	short, managed := strings.CutPrefix(r.repository, managedPrefix)
	if r.digest == "" {
		short = strings.TrimSuffix(short+":"+r.tag, ":latest")
		return managed && slices.Contains(managedImages, short)
	}
	return managed
}

// madeUpDigest returns the digest of an image that uses the machine's programs.
func (r reference) madeUpDigest() string {
	sum := sha256.Sum256([]byte(r.name()))
	return hex.EncodeToString(sum[:])
}

// openImages reads the names in Options.Images.
func (st *Store) openImages() error {
	for _, name := range st.opts.Images {
		ref, err := parseReference(name)
		if err != nil || ref.digest != "" {
			return fmt.Errorf("Options.Images: %.512q is not the name of an image, as in team/tools:v1", name)
		}
		st.digests[ref.name()] = ref.madeUpDigest()
	}
	return nil
}

// PinImage returns an image as the service shows it.
func (st *Store) PinImage(image string) (string, error) {
	ref, err := parseReference(image)
	if err != nil {
		return "", err
	}
	if ref.digest == "" {
		if st.digests[ref.name()] == "" && !ref.managed() {
			return "", errImageNotFound
		}
		ref.digest = ref.madeUpDigest()
	} else if !ref.managed() && !slices.Contains(slices.Collect(maps.Values(st.digests)), ref.digest) {
		return "", errImageNotFound
	}
	return ref.pinned(), nil
}

// account returns the user of a sandbox with these settings.
func (c *Settings) account() backend.Account {
	if c.Image != "" {
		return backend.ImageAccount
	}
	return backend.RuntimeAccount
}

// absoluteCwd returns a working directory as the API shows it.
func absoluteCwd(account backend.Account, cwd string) string {
	if path.IsAbs(cwd) {
		return path.Clean(cwd)
	}
	return path.Join(account.WorkDir, cwd)
}
