package sandbox

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"iter"
	"time"

	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/tarball"
)

// maxInline is how much data is passed as an argument of a command. The system
// limits an argument to 128 KiB, and base64 adds a third.
const maxInline = 64 << 10

// appendAttempts is how often AppendFile uploads data that disappears before it
// could be appended.
const appendAttempts = 3

// AppendFile appends data to the named file in one write, so that concurrent
// appends do not mix and none is lost. The file keeps its mode and is never
// replaced; if it does not exist it is created with mode 0644, along with
// missing parent directories. The file may be of any kind that can be written
// to, and a symbolic link is followed.
//
// Up to 64 KiB take one request; the data is then among the arguments of a
// command, which [Sandbox.ListCommands] shows. Larger data is first uploaded to
// /tmp, to a file that only the user can read. Data is never appended twice: if
// it is unknown whether it was appended, the error matches [ErrOutcomeUnknown].
// Removing an upload after an error may take two seconds, even if ctx has
// ended.
func (f *FileSystem) AppendFile(ctx context.Context, name string, data []byte) error {
	if err := f.enterFile(ctx, "append", name); err != nil {
		return err
	}
	made, err := f.appendFile(ctx, name, data)
	if o, ok := f.on().(owner); ok && made && err == nil {
		err = o.ownParents(ctx, name)
	}
	if err != nil {
		return &fs.PathError{Op: "append", Path: name, Err: reason(err)}
	}
	return nil
}

func (f *FileSystem) appendFile(ctx context.Context, name string, data []byte) (made bool, err error) {
	if len(data) <= maxInline {
		return f.tools(name).Append(ctx, name, data)
	}
	for first := true; first || len(data) > 0; first = false {
		part := data[:min(len(data), coreutils.MaxWrite)]
		data = data[len(part):]
		for attempt := 1; ; attempt++ {
			piece, tried, err := f.uploadPiece(ctx, part)
			if err == nil {
				var madeNow bool
				madeNow, err = f.tools(name).AppendPiece(ctx, name, piece)
				made = made || madeNow
				if _, ran := errors.AsType[*coreutils.Error](err); err != nil && !ran {
					tried = append(tried, piece.Path)
				}
			}
			f.discard(ctx, tried...)
			if err == nil {
				break
			}
			if !errors.Is(err, coreutils.ErrLost) || attempt == appendAttempts {
				return made, err
			}
			// The piece was gone, and nothing was appended.
		}
	}
	return made, nil
}

// uploadPiece writes data to a new file in /tmp that only the user can read.
// Each attempt uses a new name, so that data of an abandoned attempt that
// arrives late does not damage the one that succeeded. tried holds the names of
// the others, which may have to be removed.
func (f *FileSystem) uploadPiece(ctx context.Context, data []byte) (p coreutils.Piece, tried []string, err error) {
	file, err := (&File{Content: data, Mode: new(fs.FileMode(0o600))}).entry(time.Now())
	if err != nil {
		return p, nil, err
	}
	err = send(ctx, f.on(), func(string) (iter.Seq2[tarball.Entry, error], error) {
		file.Name = "tmp/.piece-" + rand.Text()
		tried = append(tried, "/"+file.Name)
		return alone(file), nil
	}, nil)
	if o, ok := f.on().(owner); ok && err == nil {
		err = o.own(ctx, []tarball.Entry{file})
	}
	if err != nil {
		return p, tried, err
	}
	sum, last := sha256.Sum256(data), len(tried)-1
	return coreutils.Piece{Path: tried[last], Size: int64(len(data)), Sum: hex.EncodeToString(sum[:])}, tried[:last], nil
}
