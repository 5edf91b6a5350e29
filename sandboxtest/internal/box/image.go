package box

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-vercel/sandbox/internal/untar"
)

// ImageID names a root file system: the SHA-256, in hexadecimal, of the archive
// that it was unpacked from, or of the name of its directory.
type ImageID string

// short is long enough for the name of a directory.
func (id ImageID) short() string { return string(id[:min(len(id), 32)]) }

// imageTrees are the directories of the images that boxes can be made from.
type imageTrees struct {
	mu   sync.Mutex
	dirs map[ImageID]string
}

// imagesDir is the directory of unpacked images. Others can't enter it, since
// some of the programs there may have set-id bits.
func (s *store) imagesDir() string { return filepath.Join(s.dir, "i") }

func (s *store) imageDir(id ImageID) string { return filepath.Join(s.imagesDir(), id.short()) }

// AddImage adds a root file system that boxes can be made from: a directory,
// which is used as it is and must not change while the host is open, or a tar
// archive, gzipped or not, which is unpacked into the host's directory unless it
// is there already. In folder mode it returns ErrUnsupported.
func (h *Host) AddImage(ctx context.Context, path string) (ImageID, error) {
	if h.way.mode == Folder {
		return "", fmt.Errorf("box: image %s: %w", path, ErrUnsupported)
	}
	h.images.mu.Lock()
	defer h.images.mu.Unlock()
	id, dir, err := h.findImage(ctx, path)
	if err == nil {
		err = h.backend.addImage(id, dir)
	}
	if err != nil {
		return "", fmt.Errorf("box: image %s: %w", path, err)
	}
	h.images.dirs[id] = dir
	return id, nil
}

// HasImage reports whether boxes can be made from an image.
func (h *Host) HasImage(id ImageID) bool { return h.openImage(id) == nil }

// openImage makes an image available that an earlier host unpacked. It does
// nothing for one that was added.
func (h *Host) openImage(id ImageID) error {
	if id == "" {
		return nil
	}
	h.images.mu.Lock()
	defer h.images.mu.Unlock()
	if h.images.dirs[id] != "" {
		return nil
	}
	dir := h.store.imageDir(id)
	if _, err := os.Lstat(dir); err != nil || h.way.mode == Folder {
		return fmt.Errorf("%w: %s", ErrNoImage, id)
	}
	if err := h.backend.addImage(id, dir); err != nil {
		return err
	}
	h.images.dirs[id] = dir
	return nil
}

// KeepImages removes the unpacked images, except for those given, those added
// since, and those on which layers stand.
func (h *Host) KeepImages(ids []ImageID) error {
	h.images.mu.Lock()
	defer h.images.mu.Unlock()
	keep := make(map[string]bool)
	for _, id := range ids {
		keep[id.short()] = true
	}
	for id := range h.images.dirs {
		keep[id.short()] = true
	}
	h.store.mu.Lock()
	for _, l := range h.store.layers {
		keep[l.Image.short()] = true
	}
	h.store.mu.Unlock()
	entries, err := os.ReadDir(h.store.imagesDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			err = errors.Join(err, removeAll(filepath.Join(h.store.imagesDir(), e.Name())))
		}
	}
	return err
}

// findImage returns the directory of an image, and unpacks an archive into one.
func (h *Host) findImage(ctx context.Context, path string) (ImageID, string, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", "", err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", "", err
	case info.IsDir():
		if isBelow(h.dir, path) || isBelow(path, h.dir) {
			return "", "", fmt.Errorf("%w: it shares its files with %s, where sandboxes are kept", ErrBadImage, h.dir)
		}
		sum := sha256.Sum256([]byte("directory " + path))
		return ImageID(hex.EncodeToString(sum[:])), path, checkImage(path)
	case !info.Mode().IsRegular():
		return "", "", fmt.Errorf("%w: neither a directory nor an archive", ErrBadImage)
	}
	return h.unpackImage(ctx, path)
}

// isBelow reports whether a clean path is in a directory, or the directory.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// checkImage refuses directories that may be mistaken for a root file system.
func checkImage(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("%w: it is empty", ErrBadImage)
	}
	for _, name := range []string{"manifest.json", "oci-layout"} {
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name }) {
			return fmt.Errorf("%w: it has %s, so it holds layers and not their files: \"docker export\" of a container writes these", ErrBadImage, name)
		}
	}
	return nil
}

// unpackImage unpacks an archive into the store. It appears there as a whole.
func (h *Host) unpackImage(ctx context.Context, path string) (ImageID, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, contextReader{ctx, f}); err != nil {
		return "", "", err
	}
	id := ImageID(hex.EncodeToString(sum.Sum(nil)))
	dir := h.store.imageDir(id)
	if _, err := os.Lstat(dir); err == nil {
		return id, dir, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(h.store.imagesDir(), 0o700); err != nil {
		return "", "", err
	}
	// What is cut short is swept there when the store is opened.
	part := h.store.boxDir(newID())
	if err := os.Mkdir(part, 0o700); err != nil {
		return "", "", err
	}
	tree := filepath.Join(part, "tree")
	sum.Reset()
	err = mkdir(tree, 0o755)
	if err == nil {
		err = h.unpack(ctx, io.TeeReader(f, sum), tree)
	}
	if err == nil {
		err = checkImage(tree)
	}
	if err == nil && ImageID(hex.EncodeToString(sum.Sum(nil))) != id {
		err = fmt.Errorf("%w: it has changed while it was read", ErrBadImage)
	}
	if err == nil {
		err = os.Rename(tree, dir)
	}
	return id, dir, errors.Join(err, removeAll(part))
}

// unpack unpacks an archive to its last byte.
func (h *Host) unpack(ctx context.Context, archive io.Reader, tree string) error {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	buffered := bufio.NewReaderSize(archive, 1<<20)
	files := io.Reader(buffered)
	switch head, _ := buffered.Peek(4); { // a short one is no archive, which tar tells
	case strings.HasPrefix(string(head), "\x1f\x8b"):
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return badImage(err)
		}
		defer unzipped.Close()
		files = unzipped
	case string(head) == "\x28\xb5\x2f\xfd", string(head) == "\xfd7zX", strings.HasPrefix(string(head), "BZh"):
		return fmt.Errorf("%w: it is compressed, but not by gzip", ErrBadImage)
	}
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	err = untar.Extract(ctx, files, root, untar.Options{
		MaxEntries: archiveLimits.Entries, MaxBytes: archiveLimits.Bytes, OutsideLinks: true, Owners: !h.Rootless(),
		Keep: func(name string, _ bool) bool {
			if strings.HasPrefix(filepath.Base(name), whiteoutPrefix) {
				refuse(fmt.Errorf("it has %q, so it is one layer of an image and not the whole", name))
			}
			// Boxes have devices of their own.
			return name != "dev" && !strings.HasPrefix(name, "dev/")
		},
	})
	if err != nil {
		return badImage(err)
	}
	// The rest matters only for the checksum.
	_, err = io.Copy(io.Discard, buffered)
	return err
}

// whiteoutPrefix begins the names of files that delete others of the layers
// below.
const whiteoutPrefix = ".wh."

func badImage(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBadImage, err)
}
