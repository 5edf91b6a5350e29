package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

const (
	// managedPrefix is that of the service's own images.
	managedPrefix = "vercel/sandbox/"
	DefaultImage  = managedPrefix + "universal"
	// DefaultRuntime is that of sandboxes of the v2 API without a runtime or an
	// image, and what sandboxes of an image show.
	DefaultRuntime = "node22"
	Architecture   = "amd64"
	Arm64          = "arm64"
)

// managedImages are the service's own, below managedPrefix. They stand for the
// machine's programs, with the user and the directories of an image, unless
// Options.Images says otherwise.
var managedImages = []string{"universal", "node:22", "node:24", "node:26", "python:3.14", "ubuntu", "arch"}

// validImage is compiled for the first image: its repetitions take a millisecond of
// each process's start.
var validImage = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]+([._/-][a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
})

var errImageNotFound = reply.NotFound("Image not found.")

// reference is the name of an image in its parts.
type reference struct{ repository, tag, digest string }

// parseReference reads a name as callers write it.
func parseReference(image string) (reference, error) {
	if len(image) > 512 || !validImage().MatchString(image) {
		return reference{}, reply.BadRequest("Invalid image reference: %.512s", image)
	}
	name, digest, _ := strings.Cut(image, "@sha256:")
	repository, tag, _ := strings.Cut(name, ":")
	if tag == "" {
		tag = "latest"
	}
	return reference{repository, tag, digest}, nil
}

// name is what the image is called without its digest.
func (r reference) name() string { return r.repository + ":" + r.tag }

// pinned is the image as the service shows it, by its digest.
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

// madeUpDigest is that of an image that stands for the machine's programs.
func (r reference) madeUpDigest() string {
	sum := sha256.Sum256([]byte(r.name()))
	return hex.EncodeToString(sum[:])
}

// machineRoot is the path in Options.Images of what stands for the machine's own
// programs.
const machineRoot = "/"

// images are those that the server knows. They never change.
type images struct {
	host *box.Host
	// pins are the digests of names, and roots what the pinned names lead to:
	// the machine's programs, if it is empty.
	pins  map[string]string
	roots map[string]box.ImageID
}

// openImages opens the images of Options.Images.
func (st *Store) openImages() error {
	st.images = &images{host: st.Host, pins: make(map[string]string), roots: make(map[string]box.ImageID)}
	for _, name := range slices.Sorted(maps.Keys(st.opts.Images)) {
		path := st.opts.Images[name]
		ref, err := parseReference(name)
		if err != nil || ref.digest != "" {
			return fmt.Errorf("Options.Images: %.512q is not the name of an image, as in team/tools:v1", name)
		}
		if path == "" {
			return fmt.Errorf("Options.Images: %s has no path", name)
		}
		if st.images.pins[ref.name()] != "" {
			return fmt.Errorf("Options.Images has two of %s", ref.name())
		}
		ref.digest = ref.madeUpDigest()
		var root box.ImageID
		if path != machineRoot {
			if st.Host.Mode() == box.Folder {
				return errors.Join(fmt.Errorf("Options.Images: %s has a root file system of its own, which only namespace mode can give a sandbox", name),
					st.Host.Reasons())
			}
			if root, err = st.Host.AddImage(st.ctx, path); err != nil {
				return fmt.Errorf("Options.Images: %s: %w", name, err)
			}
			ref.digest = string(root)
		}
		st.images.pins[ref.name()] = ref.digest
		st.images.roots[ref.pinned()] = root
	}
	return nil
}

// pin gives an image as the service shows it.
func (i *images) pin(image string) (string, error) {
	ref, err := parseReference(image)
	if err != nil {
		return "", err
	}
	if ref.digest == "" {
		switch digest := i.pins[ref.name()]; {
		case digest != "":
			ref.digest = digest
		case ref.managed():
			ref.digest = ref.madeUpDigest()
		default:
			return "", errImageNotFound
		}
	}
	_, err = i.root(ref.pinned())
	return ref.pinned(), err
}

// root gives what a pinned image leads to.
func (i *images) root(pinned string) (box.ImageID, error) {
	ref, err := parseReference(pinned)
	if err != nil {
		return "", err
	}
	root, ok := i.roots[ref.pinned()]
	switch id := box.ImageID(ref.digest); {
	case ok:
		return root, nil
	case i.host.HasImage(id): // of an earlier server
		return id, nil
	case ref.managed():
		return "", nil
	}
	return "", errImageNotFound
}

// keepImages removes what was unpacked of images that nothing needs anymore.
func (st *Store) keepImages() error {
	var ids []box.ImageID
	add := func(image string) {
		if ref, err := parseReference(image); err == nil && ref.digest != "" {
			ids = append(ids, box.ImageID(ref.digest))
		}
	}
	st.mu.Lock()
	for _, sb := range st.sandboxes {
		add(sb.settings.Image)
	}
	for _, sn := range st.snapshots {
		if sn.status == snapshotCreated {
			add(sn.Image)
		}
	}
	st.mu.Unlock()
	return st.Host.KeepImages(ids)
}

// account is the user that sandboxes with the settings have.
func (c *Settings) account() box.Account {
	if c.Image != "" {
		return box.ImageAccount
	}
	return box.RuntimeAccount
}

// absolute is a working directory as the API shows it.
func absolute(account box.Account, cwd string) string {
	if path.IsAbs(cwd) {
		return path.Clean(cwd)
	}
	return path.Join(account.WorkDir, cwd)
}
