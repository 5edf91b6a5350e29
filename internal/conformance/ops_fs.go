package conformance

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/go-vercel/sandbox"
)

// fsArgs are the arguments of the fs operations.
type fsArgs struct {
	Path          string          `json:"path"`
	Encoding      string          `json:"encoding"`
	Data          ByteSpec        `json:"data"`
	Recursive     bool            `json:"recursive"`
	WithFileTypes bool            `json:"withFileTypes"`
	Force         bool            `json:"force"`
	From          string          `json:"from"`
	To            string          `json:"to"`
	Mode          json.RawMessage `json:"mode"`
	UID           int             `json:"uid"`
	GID           int             `json:"gid"`
	Target        string          `json:"target"`
	Len           int64           `json:"len"`
	Prefix        string          `json:"prefix"`
}

// fsCall returns the file system that an fs operation works on, and its
// arguments.
func (c *call) fsCall() (*sandbox.FileSystem, fsArgs, error) {
	var a fsArgs
	t, err := on[interface{ FS() *sandbox.FileSystem }](c)
	if err != nil {
		return nil, a, err
	}
	return t.FS(), a, c.args(&a)
}

func fsOp(do func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		f, a, err := c.fsCall()
		if err != nil {
			return nil, err
		}
		return do(c.ctx, f, &a)
	}
}

var (
	opFSReadFile = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		data, err := readAll(ctx, f, a.Path)
		if err != nil || a.Encoding == "" {
			return data, err
		}
		return decodeText(data, a.Encoding)
	})
	opFSWriteFile = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		data, err := a.data()
		if err != nil {
			return nil, err
		}
		return nil, f.WriteFile(ctx, a.Path, data, 0o644)
	})
	opFSAppendFile = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		data, err := a.data()
		if err != nil {
			return nil, err
		}
		return nil, f.AppendFile(ctx, a.Path, data)
	})
	opFSMkdir = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		if a.Recursive {
			return nil, f.MkdirAll(ctx, a.Path, 0o777)
		}
		return nil, f.Mkdir(ctx, a.Path, 0o777)
	})
	opFSStat = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return stats(f.Stat(ctx, a.Path))
	})
	opFSLstat = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return stats(f.Lstat(ctx, a.Path))
	})
	opFSUnlink = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return nil, f.Remove(ctx, a.Path)
	})
	opFSRm = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		if a.Recursive {
			return nil, f.RemoveAll(ctx, a.Path)
		}
		err := f.Remove(ctx, a.Path)
		if a.Force && errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	})
	opFSRmdir = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return nil, f.Remove(ctx, a.Path)
	})
	opFSRename = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return nil, f.Rename(ctx, a.From, a.To)
	})
	opFSCopyFile = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return nil, f.CopyFile(ctx, a.From, a.To)
	})
	opFSAccess = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		found, err := f.Exists(ctx, a.Path)
		if err == nil && !found {
			err = &fs.PathError{Op: "access", Path: a.Path, Err: &sandbox.FSError{Errno: syscall.ENOENT}}
		}
		return nil, err
	})
	opFSExists = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return f.Exists(ctx, a.Path)
	})
	opFSChmod = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		var text string
		if json.Unmarshal(a.Mode, &text) == nil {
			if bits, err := strconv.ParseUint(text, 8, 12); err == nil && strconv.FormatUint(bits, 8) == text {
				return nil, f.Chmod(ctx, a.Path, goMode(uint32(bits)))
			}
			return nil, f.ChmodSymbolic(ctx, a.Path, text)
		}
		var bits uint32
		if err := json.Unmarshal(a.Mode, &bits); err != nil {
			return nil, err
		}
		return nil, f.Chmod(ctx, a.Path, goMode(bits))
	})
	opFSChown = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return nil, f.Chown(ctx, a.Path, a.UID, a.GID)
	})
	opFSSymlink = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return nil, f.Symlink(ctx, a.Target, a.Path)
	})
	opFSReadlink = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return f.Readlink(ctx, a.Path)
	})
	opFSRealpath = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return f.RealPath(ctx, a.Path)
	})
	opFSTruncate = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		return nil, f.Truncate(ctx, a.Path, a.Len)
	})
	opFSMkdtemp = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		dir, pattern := path.Split(a.Prefix)
		if dir == "" {
			dir = "."
		}
		return f.MkdirTemp(ctx, dir, pattern)
	})
	opFSReaddir = fsOp(func(ctx context.Context, f *sandbox.FileSystem, a *fsArgs) (any, error) {
		entries, err := f.ReadDir(ctx, a.Path)
		if err != nil {
			return nil, err
		}
		out := []any{}
		for _, e := range entries {
			if !a.WithFileTypes {
				out = append(out, e.Name())
				continue
			}
			out = append(out, map[string]any{
				"name": e.Name(), "parentPath": a.Path, "path": a.Path + "/" + e.Name(), "is": kinds(e.Type(), true),
			})
		}
		return out, nil
	})
)

// data returns the bytes to write. The text in utf8 is decoded with the
// encoding, as Buffer.from does.
func (a *fsArgs) data() ([]byte, error) {
	if a.Data.Base64 != nil || a.Encoding == "" {
		return a.Data.Bytes()
	}
	raw, err := a.Data.Bytes()
	if err != nil {
		return nil, err
	}
	text := string(raw)
	switch a.Encoding {
	case "utf8", "utf-8":
		return raw, nil
	case "base64":
		return base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	case "hex":
		return hex.DecodeString(text)
	case "latin1":
		out := make([]byte, 0, len(text))
		for _, r := range text {
			out = append(out, byte(r))
		}
		return out, nil
	default:
		return nil, fmt.Errorf("conformance: unknown encoding %q", a.Encoding)
	}
}

// decodeText converts bytes to a string as Buffer.toString does.
func decodeText(data []byte, encoding string) (any, error) {
	switch encoding {
	case "utf8", "utf-8":
		return validUTF8(data), nil
	case "base64":
		return base64.StdEncoding.EncodeToString(data), nil
	case "hex":
		return hex.EncodeToString(data), nil
	case "latin1":
		var b strings.Builder
		for _, c := range data {
			b.WriteRune(rune(c))
		}
		return b.String(), nil
	default:
		return nil, fmt.Errorf("conformance: unknown encoding %q", encoding)
	}
}

// validUTF8 replaces invalid UTF-8 by U+FFFD.
func validUTF8(data []byte) string {
	var b strings.Builder
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		b.WriteRune(r)
		data = data[n:]
	}
	return b.String()
}

// kinds names the methods of JavaScript's Stats and Dirent that return true. An
// entry whose type a listing omits counts as a file there.
func kinds(mode fs.FileMode, listed bool) []any {
	switch {
	case mode&fs.ModeDir != 0:
		return []any{"Directory"}
	case mode&fs.ModeSymlink != 0:
		return []any{"SymbolicLink"}
	case mode&fs.ModeCharDevice != 0:
		return []any{"CharacterDevice"}
	case mode&fs.ModeDevice != 0:
		return []any{"BlockDevice"}
	case mode&fs.ModeNamedPipe != 0:
		return []any{"FIFO"}
	case mode&fs.ModeSocket != 0:
		return []any{"Socket"}
	case mode&fs.ModeIrregular != 0 && !listed:
		return []any{}
	default:
		return []any{"File"}
	}
}

func stats(info fs.FileInfo, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*sandbox.FileStat)
	if !ok {
		return nil, errors.New("conformance: Stat gave no *FileStat")
	}
	out := map[string]any{
		"is": kinds(info.Mode(), false), "dev": float64(st.Device), "mode": float64(st.RawMode), "nlink": float64(st.Links),
		"uid": float64(st.UID), "gid": float64(st.GID), "rdev": 0.0, "blksize": float64(st.BlockSize), "ino": float64(st.Inode),
		"size": float64(st.Size), "blocks": float64(st.Blocks),
	}
	for name, t := range map[string]time.Time{"a": st.AccessTime, "m": st.ModTime, "c": st.ChangeTime, "birth": st.BirthTime} {
		key := name + "time"
		if t.IsZero() {
			out[key], out[key+"Ms"] = "Invalid Date", nil
			continue
		}
		out[key], out[key+"Ms"] = isoTime(t), float64(t.UnixNano())/1e6
	}
	return out, nil
}

// readAll reads a file without asking for its size, as JavaScript does.
func readAll(ctx context.Context, f *sandbox.FileSystem, name string) ([]byte, error) {
	r, err := f.Open(ctx, name, &sandbox.OpenOptions{NoSizeCheck: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}
