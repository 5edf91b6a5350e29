package sandboxtest

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

const (
	// managedPrefix is that of the service's own images.
	managedPrefix = "vercel/sandbox/"
	defaultImage  = managedPrefix + "universal"
	// defaultRuntime is that of sandboxes of the v2 API without a runtime or an
	// image, and what sandboxes of an image show.
	defaultRuntime = "node22"
	architecture   = "amd64"
)

// managedImages are the service's own, below managedPrefix. They all stand for
// the host's programs, with the user and the directories of an image.
var managedImages = []string{"universal", "node:22", "node:24", "node:26", "python:3.14", "ubuntu", "arch"}

var validImage = regexp.MustCompile(`^[a-z0-9]+([._/-][a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)

// pinImage checks the reference of an image and gives it as the service shows
// it, by its digest.
func pinImage(image string) (string, error) {
	if len(image) > 512 || !validImage.MatchString(image) {
		return "", badRequest("Invalid image reference: %.512s", image)
	}
	name, digest, pinned := strings.Cut(image, "@")
	repository, tag, _ := strings.Cut(name, ":")
	if short, managed := strings.CutPrefix(name, managedPrefix); managed {
		short = strings.TrimSuffix(short, ":latest")
		if !pinned && !slices.Contains(managedImages, short) {
			return "", notFound("Image not found.")
		}
	}
	if pinned {
		return repository + "@" + digest, nil
	}
	if tag == "" {
		tag = "latest"
	}
	sum := sha256.Sum256([]byte(repository + ":" + tag))
	return repository + "@sha256:" + hex.EncodeToString(sum[:]), nil
}

// account is the user that sandboxes with the settings have.
func (c *settings) account() box.Account {
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
