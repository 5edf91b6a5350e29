package oidc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// DataDir returns the data directory of the Vercel tools.
func (h *Host) DataDir() (string, error) {
	if dir := h.Getenv("XDG_DATA_HOME"); dir != "" {
		return dir, nil
	}
	if h.GOOS == "windows" {
		if dir := h.Getenv("LOCALAPPDATA"); dir != "" {
			return dir, nil
		}
	}
	home, err := h.home()
	if err != nil {
		return "", err
	}
	switch h.GOOS {
	case "darwin":
		return h.join(home, "Library", "Application Support"), nil
	case "windows":
		return h.join(home, "AppData", "Local"), nil
	default:
		return h.join(home, ".local", "share"), nil
	}
}

// LoginFile returns the file with the CLI's login.
func (h *Host) LoginFile() (string, error) {
	dir, err := h.cliDir()
	if err != nil {
		return "", err
	}
	return h.join(dir, "auth.json"), nil
}

// cliDir returns the folder of the Vercel CLI: the first of its possible folders
// that exists, or else the first.
func (h *Host) cliDir() (string, error) {
	if dir := h.Getenv("VERCEL_AUTH_CONFIG_DIR"); dir != "" {
		return dir, nil
	}
	dirs, err := h.appDirs("com.vercel.cli")
	if err != nil {
		return "", err
	}
	if roaming, err := h.roamingDir(); err == nil && h.GOOS == "windows" && h.Getenv("XDG_DATA_HOME") == "" {
		dirs = append(dirs, h.join(roaming, "xdg.data", "com.vercel.cli"))
	}
	if home, err := h.home(); err == nil {
		dirs = append(dirs, h.join(home, ".now"))
	}
	if older, err := h.appDirs("now"); err == nil {
		dirs = append(dirs, older...)
	}
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			return dir, nil
		}
	}
	return dirs[0], nil
}

// appDirs returns the data folders of a program, as the CLI's library
// xdg-app-paths 5.1.0 does.
func (h *Host) appDirs(app string) ([]string, error) {
	var dirs []string
	if h.GOOS == "windows" && h.Getenv("XDG_DATA_HOME") == "" {
		roaming, err := h.roamingDir()
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, h.join(roaming, app, "Data"))
	} else {
		data, err := h.DataDir()
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, h.join(data, app))
	}
	separator := ":"
	if h.GOOS == "windows" {
		separator = ";"
	}
	if more := h.Getenv("XDG_DATA_DIRS"); more != "" {
		for dir := range strings.SplitSeq(more, separator) {
			dirs = append(dirs, h.join(dir, app))
		}
	}
	return dirs, nil
}

// roamingDir returns the folder of Windows for data that follows a user from machine to
// machine.
func (h *Host) roamingDir() (string, error) {
	if dir := h.Getenv("APPDATA"); dir != "" {
		return dir, nil
	}
	home, err := h.home()
	if err != nil {
		return "", err
	}
	return h.join(home, "AppData", "Roaming"), nil
}

// TokenFile returns the file in which the tools store the OIDC token of a
// project.
func (h *Host) TokenFile(projectID string) (string, error) {
	if err := checkID("project ID", projectID); err != nil {
		return "", err
	}
	data, err := h.DataDir()
	if err != nil {
		return "", err
	}
	return h.join(data, "com.vercel.token", projectID+".json"), nil
}

// object is a JSON object whose unknown keys are preserved when it is written
// back.
type object map[string]json.RawMessage

// readObject reads a JSON object from a file. Errors name the file and never
// show its content. A missing file matches fs.ErrNotExist; an empty one, which
// the official tools leave behind, counts as an empty object.
func readObject(file string) (object, error) {
	data, _, err := readFile(file)
	if err != nil {
		// Treat a home that is /dev/null or another user's as empty.
		if _, there := os.Stat(file); errors.Is(there, syscall.ENOTDIR) || errors.Is(there, fs.ErrPermission) {
			err = fs.ErrNotExist
		}
		return nil, err
	}
	return parseObject(file, data)
}

// readFile reads a regular file of at most maxBody bytes. It never waits for a
// pipe.
func readFile(file string) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(file, openFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", file)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBody+1))
	if err == nil && len(data) > maxBody {
		err = fmt.Errorf("%s has more than %d bytes", file, maxBody)
	}
	return data, info, err
}

// parseObject decodes the content of a file.
func parseObject(file string, data []byte) (object, error) {
	if len(data) == 0 {
		return object{}, nil
	}
	o := object{}
	if json.Unmarshal(data, &o) != nil || o == nil {
		return nil, fmt.Errorf("%s is broken: it does not hold a JSON object", file)
	}
	return o, nil
}

// get decodes the value of a key into v. If the key is absent or null, v is not
// changed.
func (o object) get(file, key string, v any) error {
	raw, ok := o[key]
	if !ok {
		return nil
	}
	if json.Unmarshal(raw, v) != nil {
		return fmt.Errorf("%s is broken: its %q is not of the expected type", file, key)
	}
	return nil
}

// set encodes the value of a key.
func (o object) set(key string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	o[key] = raw
	return nil
}

// fileReplacement is a file that is about to be replaced. Steps that can fail for lack of
// permission precede its creation.
type fileReplacement struct {
	file string
	temp *os.File
}

// replace starts replacing a file, creating its directory if needed. The caller
// must call commit or drop.
func replace(file string) (*fileReplacement, error) {
	file = resolveLink(file)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("preparing to write %s: %w", file, err)
	}
	sweep(file)
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("preparing to write %s: %w", file, err)
	}
	return &fileReplacement{file, temp}, nil
}

// resolveLink returns the target of a symbolic link. The link is preserved, and a file has one
// lock for all of its names.
func resolveLink(file string) string {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		return target
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(file)); err == nil {
		return filepath.Join(dir, filepath.Base(file))
	}
	return file
}

// leftoverAge is how old a temporary file must be for its writer to be gone.
const leftoverAge = time.Hour

// sweep removes the temporary files that killed processes have left next to a
// file, since they contain secrets.
func sweep(file string) {
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".*"))
	for _, name := range left {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(name)
		}
	}
}

// commit writes o and replaces the file: readers see the complete old or the
// complete new content.
func (r *fileReplacement) commit(o object) error {
	defer r.drop()
	var text bytes.Buffer
	data, err := json.Marshal(o)
	if err == nil {
		err = json.Indent(&text, data, "", "  ")
	}
	if err == nil {
		text.WriteByte('\n')
		_, err = r.temp.Write(text.Bytes())
	}
	if err == nil {
		err = r.temp.Sync()
	}
	if err == nil {
		err = r.temp.Close()
	}
	if err == nil {
		err = rename(r.temp.Name(), r.file)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", r.file, err)
	}
	syncDir(filepath.Dir(r.file))
	return nil
}

// rename replaces a file with another. Windows refuses while anyone reads the
// other, which never takes long.
func rename(from, to string) error {
	err := os.Rename(from, to)
	for i := 0; i < 20 && err != nil && runtime.GOOS == "windows"; i++ {
		time.Sleep(lockPoll)
		err = os.Rename(from, to)
	}
	return err
}

// drop discards the replacement. After a commit it has no effect.
func (r *fileReplacement) drop() {
	_ = r.temp.Close()
	_ = os.Remove(r.temp.Name())
}

// lockPoll is how often a lock held by another process is retried.
const lockPoll = 20 * time.Millisecond

// lock acquires the lock of a file, which excludes other processes that use this package.
// It waits until ctx ends. The lock is a file next to it, because the file itself is
// replaced.
func lock(ctx context.Context, file string) (unlock func(), err error) {
	file = resolveLink(file)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("locking %s: %w", file, err)
	}
	l := flock.New(file + ".lock")
	if _, err := l.TryLockContext(ctx, lockPoll); err != nil {
		return nil, fmt.Errorf("locking %s: %w", file, err)
	}
	return func() { _ = l.Close() }, nil
}

// isRefused reports whether a server has already refused the secret. The lock file stores
// a hash of it for the next holder. Otherwise each of many processes would send the same
// used token again.
func isRefused(file, secret string) bool {
	kept, err := os.ReadFile(resolveLink(file) + ".lock")
	return err == nil && string(kept) == sum(secret)
}

// storeRefusal stores a hash of the refused secret. The caller holds the lock. A failure
// only costs requests.
func storeRefusal(file, secret string) {
	_ = os.WriteFile(resolveLink(file)+".lock", []byte(sum(secret)), 0o600)
}

func sum(secret string) string {
	s := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(s[:])
}

// lockIfPossible is like lock, but does nothing on a read-only disk, where there is nothing to
// protect.
func lockIfPossible(ctx context.Context, file string) (unlock func(), err error) {
	unlock, err = lock(ctx, file)
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return func() {}, nil
	}
	return unlock, err
}
