package untar

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
)

// ExtractEncoded is Extract for an archive that is compressed and in base64, as a
// sandbox sends it, to its very end: only then is nothing missing.
func ExtractEncoded(ctx context.Context, r io.Reader, root *os.Root, opts Options) error {
	gz, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, r))
	if err == nil {
		err = Extract(ctx, gz, root, opts)
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	switch n, err := io.Copy(io.Discard, io.LimitReader(r, 1)); {
	case n > 0:
		return fmt.Errorf("%w: the sandbox sends more than an archive", ErrUnsafe)
	default:
		return err
	}
}
