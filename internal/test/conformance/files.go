package conformance

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
)

// filePath is the path of a file. If Cwd is empty, a path is relative to the sandbox's directory.
type filePath struct{ Path, Cwd string }

// fileArgs are the arguments of operations that need more than one call.
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

type filesystem interface{ FS() *sandbox.FileSystem }

// readAll reads a file. Like JavaScript, it does not check the size.
func readAll(c *call, f *sandbox.FileSystem, name filePath) ([]byte, error) {
	r, err := f.Open(c.ctx, name.Path, &sandbox.OpenOptions{Cwd: name.Cwd, NoSizeCheck: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}

func opReadFile(c *call, on filesystem, a fileArgs) (any, error) {
	data, err := readAll(c, on.FS(), a.filePath)
	if err != nil {
		return c.orMissing(err, a.filePath)
	}
	return data, nil
}

// orMissing returns the result for an error of reading a file. Like JavaScript, this is null
// for a missing file. For a user's file, it translates the error to JavaScript's text.
func (c *call) orMissing(err error, src filePath) (any, error) {
	pe, ok := errors.AsType[*fs.PathError](err)
	fe, remote := errors.AsType[*sandbox.FSError](err)
	if errors.Is(err, fs.ErrNotExist) && (remote || !ok || errnoName(pe) == "") {
		return nil, nil
	}
	_, api := errors.AsType[*sandbox.APIError](err)
	if u, ok := c.target.(*sandbox.User); ok && remote && !api {
		name := src.Path
		if !strings.HasPrefix(name, "/") {
			name = cmp.Or(src.Cwd, u.HomeDir()) + "/" + name
		}
		return nil, textError("Failed to read " + name + ": " + fe.Message)
	}
	return nil, err
}

func opDownloadFile(c *call, on filesystem, a fileArgs) (any, error) {
	// A destination may have a directory and a path. In Go, the caller joins both.
	local := a.Dst.Path
	if local != "" {
		if !filepath.IsAbs(local) {
			local = filepath.Join(a.Dst.Cwd, local)
		}
		local = must(filepath.Abs(local))
	}
	err := on.FS().DownloadFile(c.ctx, a.Src.Path, local, &sandbox.DownloadFileOptions{Cwd: a.Src.Cwd, MkdirAll: a.MkdirRecursive})
	if err != nil {
		return c.orMissing(err, a.Src)
	}
	return local, nil
}

func opWriteFiles(c *call, on filesystem, a fileArgs) (any, error) {
	list := make([]sandbox.File, len(a.Files))
	for i, file := range a.Files {
		list[i] = sandbox.File{Path: file.Path, Content: file.Content.Bytes()}
		if file.Mode != nil {
			list[i].Mode = new(goMode(*file.Mode))
		}
	}
	return nil, on.FS().WriteFiles(c.ctx, list, nil)
}

func opChmod(c *call, on filesystem, a fileArgs) (any, error) {
	var text string
	if json.Unmarshal(a.Mode, &text) != nil {
		return nil, on.FS().Chmod(c.ctx, a.Path, goMode(decoded[uint32](a.Mode)))
	}
	octal, err := strconv.ParseUint(text, 8, 12)
	if err != nil || strconv.FormatUint(octal, 8) != text {
		return nil, on.FS().ChmodSymbolic(c.ctx, a.Path, text)
	}
	return nil, on.FS().Chmod(c.ctx, a.Path, goMode(uint32(octal)))
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

func opReaddir(c *call, on filesystem, a fileArgs) (any, error) {
	entries, err := on.FS().ReadDir(c.ctx, a.Path)
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
			"name": e.Name(), "parentPath": a.Path, "path": a.Path + "/" + e.Name(), "is": kinds(e.Type()),
		})
	}
	return out, nil
}

// content returns the bytes to write. Like Buffer.from, it decodes the text in utf8 with the
// encoding.
func content(a arguments) []byte {
	data := decoded[ByteSpec](a["data"])
	raw := data.Bytes()
	if encoding := a.text("encoding"); encoding != "" && data.Base64 == nil {
		switch encoding {
		case "base64":
			return decodeBase64(string(raw))
		case "hex":
			return must(hex.DecodeString(string(raw)))
		case "latin1":
			out := []byte{}
			for _, r := range string(raw) {
				out = append(out, byte(r))
			}
			return out
		}
	}
	return raw
}

// decodeText converts bytes to a string like Buffer.toString.
func decodeText(data []byte, encoding string) string {
	switch encoding {
	case "base64":
		return base64.StdEncoding.EncodeToString(data)
	case "hex":
		return hex.EncodeToString(data)
	case "latin1":
		runes := make([]rune, len(data))
		for i, b := range data {
			runes[i] = rune(b)
		}
		return string(runes)
	}
	return string([]rune(string(data))) // replaces each invalid byte by U+FFFD
}

// kinds returns the names of the methods of JavaScript's Stats and Dirent that return true. In
// JavaScript, an entry of an unknown type is a file.
func kinds(mode fs.FileMode) []any {
	return []any{cmp.Or(map[fs.FileMode]string{
		fs.ModeDir: "Directory", fs.ModeSymlink: "SymbolicLink", fs.ModeDevice: "BlockDevice",
		fs.ModeDevice | fs.ModeCharDevice: "CharacterDevice", fs.ModeNamedPipe: "FIFO", fs.ModeSocket: "Socket",
	}[mode.Type()], "File")}
}

func stats(info fs.FileInfo) any {
	st := info.Sys().(*sandbox.FileStat)
	out := object{
		"is": kinds(info.Mode()), "dev": float64(st.Device), "mode": float64(st.RawMode), "nlink": float64(st.Links),
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
