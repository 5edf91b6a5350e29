package mirror

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"

	"github.com/go-vercel/sandbox/internal/untar"
)

// packScript writes files of a directory of a sandbox, its argument, to standard
// output as a compressed archive, in base64: output carries only text. Standard
// input has their names, each followed by a NUL.
//
// That a file changes while tar reads it, which is its exit code 1, is no failure.
const packScript = `set -o pipefail; unset CDPATH; cd -- "$1" && { tar --format=posix --pax-option=delete=atime,delete=ctime --hard-dereference ` +
	`--no-recursion --null -T - -cf - || [ $? = 1 ]; } | gzip -1 | base64 -w 8192`

// unpackArchive unpacks what packScript writes, to its very end: only then is nothing
// missing.
func unpackArchive(ctx context.Context, r io.Reader, root *os.Root, opts untar.Options) error {
	gz, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, r))
	if err == nil {
		err = untar.Extract(ctx, gz, root, opts)
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(r, 1)); n > 0 {
		return errors.Join(untar.ErrUnsafe, errors.New("the sandbox sends more than an archive"))
	} else if err != nil {
		return err
	}
	return nil
}
