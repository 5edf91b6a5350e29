package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"syscall"
)

// maxInline is how much data travels as an argument of a command. The system
// limits an argument to 128 KiB, and base64 makes it a third longer.
const maxInline = 64 << 10

// AppendFile adds data to the end of a file. The file keeps its mode; a missing
// one is made with mode 0644. What is sent is what is added, not the file.
//
// Data up to 64 KiB take one request. Longer ones are uploaded to /tmp first.
func (f *FileSystem) AppendFile(ctx context.Context, name string, data []byte) error {
	const (
		inline = `printf %s "$2" | base64 -d | dd of="$1" oflag=append conv=notrunc status=none`
		upload = `dd if="$2" of="$1" bs=1M oflag=append conv=notrunc status=none; r=$?; rm -f -- "$2"; exit $r`
	)
	if err := checkPath("append", name); err != nil {
		return err
	}
	script, source := inline, base64.StdEncoding.EncodeToString(data)
	if len(data) > maxInline {
		script, source = upload, "/tmp/.append-"+rand.Text()
		if err := f.write(ctx, "append", name, File{Path: source, Content: data, Mode: new(fs.FileMode(0o600))}); err != nil {
			return err
		}
	}
	err := f.pathOp(ctx, "append", name, "sh", "-c", script, "sh", name, source)
	if _, ok := errors.AsType[*FSError](err); err != nil && !ok && script == upload {
		f.discard(ctx, source)
	}
	if errors.Is(err, syscall.ENOENT) {
		// A directory on the way is missing. As WriteFile does, make it.
		return f.write(ctx, "append", name, File{Path: name, Content: data})
	}
	return err
}
