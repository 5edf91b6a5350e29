package conformance

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox"
)

// filePath names a file; its directory is the sandbox's unless it has one.
type filePath struct{ Path, Cwd string }

// fileArgs are the arguments of the operations that are more than one call.
type fileArgs struct {
	filePath
	Encoding, Prefix                                string
	Recursive, WithFileTypes, Force, MkdirRecursive bool
	Mode                                            json.RawMessage
	Src, Dst                                        filePath
	Files                                           []struct {
		Path    string
		Content ByteSpec
		Mode    *uint32
	}
}

func fileOp(do func(c *call, f *sandbox.FileSystem, a *fileArgs) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		var a fileArgs
		t, err := on[interface{ FS() *sandbox.FileSystem }](c)
		if err := errors.Join(err, c.args(&a)); err != nil {
			return nil, err
		}
		return do(c, t.FS(), &a)
	}
}

var fileOps = map[string]func(*call) (any, error){
	"readFile": fileOp(opReadFile), "readFileToBuffer": fileOp(opReadFile), "downloadFile": fileOp(opDownloadFile),
	"writeFiles": fileOp(opWriteFiles), "fs.chmod": fileOp(opChmod), "fs.readdir": fileOp(opReaddir),
	"fs.readFile": fileOp(func(c *call, f *sandbox.FileSystem, a *fileArgs) (any, error) {
		data, err := readAll(c, f, a.filePath)
		if err != nil || a.Encoding == "" {
			return data, err
		}
		return decodeText(data, a.Encoding)
	}),
	"fs.mkdir": fileOp(func(c *call, f *sandbox.FileSystem, a *fileArgs) (any, error) {
		if a.Recursive {
			return nil, f.MkdirAll(c.ctx, a.Path, 0o777)
		}
		return nil, f.Mkdir(c.ctx, a.Path, 0o777)
	}),
	"fs.rm": fileOp(func(c *call, f *sandbox.FileSystem, a *fileArgs) (any, error) {
		if a.Recursive {
			return nil, f.RemoveAll(c.ctx, a.Path)
		}
		err := f.Remove(c.ctx, a.Path)
		if a.Force && errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}),
	"fs.access": fileOp(func(c *call, f *sandbox.FileSystem, a *fileArgs) (any, error) {
		found, err := f.Exists(c.ctx, a.Path)
		if err == nil && !found {
			err = &fs.PathError{Op: "access", Path: a.Path, Err: &sandbox.FSError{Errno: syscall.ENOENT}}
		}
		return nil, err
	}),
	"fs.mkdtemp": fileOp(func(c *call, f *sandbox.FileSystem, a *fileArgs) (any, error) {
		dir, pattern := path.Split(a.Prefix)
		return f.MkdirTemp(c.ctx, cmp.Or(dir, "."), pattern)
	}),
}

// readAll reads a file without asking for its size, as JavaScript does.
func readAll(c *call, f *sandbox.FileSystem, name filePath) ([]byte, error) {
	r, err := f.Open(c.ctx, name.Path, &sandbox.OpenOptions{Cwd: name.Cwd, NoSizeCheck: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}

func opReadFile(c *call, f *sandbox.FileSystem, a *fileArgs) (any, error) {
	data, err := readAll(c, f, a.filePath)
	if err != nil {
		return c.orMissing(err, a.filePath)
	}
	return data, nil
}

// orMissing returns null for a missing file, as JavaScript does. The reason why
// a user could not read a file gets the text that it has in JavaScript.
func (c *call) orMissing(err error, src filePath) (any, error) {
	pe, ok := errors.AsType[*fs.PathError](err)
	fe, remote := errors.AsType[*sandbox.FSError](err)
	if errors.Is(err, fs.ErrNotExist) && (remote || !ok || errnoName(pe) == "") {
		return nil, nil
	}
	if u, ok := c.target.(*sandbox.User); ok && remote && fe.Err == nil {
		name := src.Path
		if !strings.HasPrefix(name, "/") {
			name = cmp.Or(src.Cwd, u.HomeDir()) + "/" + name
		}
		return nil, textError("Failed to read " + name + ": " + fe.Message)
	}
	return nil, err
}

func opDownloadFile(c *call, f *sandbox.FileSystem, a *fileArgs) (any, error) {
	// In Go, a destination with a directory of its own is a joined path.
	local := a.Dst.Path
	if local != "" {
		if !filepath.IsAbs(local) {
			local = filepath.Join(a.Dst.Cwd, local)
		}
		var err error
		if local, err = filepath.Abs(local); err != nil {
			return nil, err
		}
	}
	err := f.DownloadFile(c.ctx, a.Src.Path, local, &sandbox.DownloadFileOptions{Cwd: a.Src.Cwd, MkdirAll: a.MkdirRecursive})
	if err != nil {
		return c.orMissing(err, a.Src)
	}
	return local, nil
}

func opWriteFiles(c *call, f *sandbox.FileSystem, a *fileArgs) (any, error) {
	list := make([]sandbox.File, len(a.Files))
	for i, file := range a.Files {
		data, err := file.Content.Bytes()
		if err != nil {
			return nil, err
		}
		list[i] = sandbox.File{Path: file.Path, Content: data}
		if file.Mode != nil {
			list[i].Mode = new(goMode(*file.Mode))
		}
	}
	return nil, f.WriteFiles(c.ctx, list, nil)
}

func opChmod(c *call, f *sandbox.FileSystem, a *fileArgs) (any, error) {
	var text string
	var bits uint32
	if json.Unmarshal(a.Mode, &text) == nil {
		octal, err := strconv.ParseUint(text, 8, 12)
		if err != nil || strconv.FormatUint(octal, 8) != text {
			return nil, f.ChmodSymbolic(c.ctx, a.Path, text)
		}
		bits = uint32(octal)
	} else if err := json.Unmarshal(a.Mode, &bits); err != nil {
		return nil, err
	}
	return nil, f.Chmod(c.ctx, a.Path, goMode(bits))
}

// goMode converts Unix permission bits to a file mode.
func goMode(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	for bit, is := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= is
		}
	}
	return mode
}

func opReaddir(c *call, f *sandbox.FileSystem, a *fileArgs) (any, error) {
	entries, err := f.ReadDir(c.ctx, a.Path)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, e := range entries {
		if !a.WithFileTypes {
			out = append(out, e.Name())
			continue
		}
		out = append(out, object{
			"name": e.Name(), "parentPath": a.Path, "path": a.Path + "/" + e.Name(), "is": kinds(e.Type(), true),
		})
	}
	return out, nil
}

// content returns the bytes to write. The text in utf8 is decoded with the
// encoding, as Buffer.from does.
func content(a arguments) ([]byte, error) {
	var data ByteSpec
	if err := a.get("data", &data); err != nil {
		return nil, err
	}
	raw, err := data.Bytes()
	if encoding := a.text("encoding"); err == nil && data.Base64 == nil && encoding != "" {
		switch encoding {
		case "utf8", "utf-8":
		case "base64":
			return decodeBase64(string(raw))
		case "hex":
			return hex.DecodeString(string(raw))
		case "latin1":
			out := []byte{}
			for _, r := range string(raw) {
				out = append(out, byte(r))
			}
			return out, nil
		default:
			return nil, fmt.Errorf("conformance: unknown encoding %q", encoding)
		}
	}
	return raw, err
}

// decodeText converts bytes to a string as Buffer.toString does.
func decodeText(data []byte, encoding string) (any, error) {
	switch encoding {
	case "utf8", "utf-8": // every invalid byte is a U+FFFD
		return string([]rune(string(data))), nil
	case "base64":
		return base64.StdEncoding.EncodeToString(data), nil
	case "hex":
		return hex.EncodeToString(data), nil
	case "latin1":
		runes := make([]rune, len(data))
		for i, b := range data {
			runes[i] = rune(b)
		}
		return string(runes), nil
	default:
		return nil, fmt.Errorf("conformance: unknown encoding %q", encoding)
	}
}

// kinds names the methods of JavaScript's Stats and Dirent that return true. An
// entry whose type a listing omits counts as a file there.
func kinds(mode fs.FileMode, listed bool) []any {
	switch t := mode.Type(); {
	case t == fs.ModeIrregular && !listed:
		return []any{}
	case t == 0, t == fs.ModeIrregular:
		return []any{"File"}
	default:
		return []any{map[fs.FileMode]string{
			fs.ModeDir: "Directory", fs.ModeSymlink: "SymbolicLink", fs.ModeDevice: "BlockDevice",
			fs.ModeDevice | fs.ModeCharDevice: "CharacterDevice", fs.ModeNamedPipe: "FIFO", fs.ModeSocket: "Socket",
		}[t]}
	}
}

func stats(info fs.FileInfo) any {
	st, ok := info.Sys().(*sandbox.FileStat)
	if !ok {
		return "Stat gave no *FileStat"
	}
	out := object{
		"is": kinds(info.Mode(), false), "dev": float64(st.Device), "mode": float64(st.RawMode), "nlink": float64(st.Links),
		"uid": float64(st.UID), "gid": float64(st.GID), "rdev": 0.0, "blksize": float64(st.BlockSize), "ino": float64(st.Inode),
		"size": float64(info.Size()), "blocks": float64(st.Blocks),
	}
	for name, t := range map[string]time.Time{"a": st.AccessTime, "m": info.ModTime(), "c": st.ChangeTime, "birth": st.BirthTime} {
		key := name + "time"
		if out[key], out[key+"Ms"] = "Invalid Date", nil; !t.IsZero() {
			out[key], out[key+"Ms"] = isoTime(t), float64(t.UnixNano())/1e6
		}
	}
	return out
}
