package conformance

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
)

// tarTypes maps the types of entries to their names in the log.
var tarTypes = map[byte]string{
	tar.TypeReg: "file", tar.TypeLink: "link", tar.TypeSymlink: "symlink", tar.TypeChar: "char",
	tar.TypeBlock: "block", tar.TypeDir: "directory", tar.TypeFifo: "fifo",
}

// readTarGz lists the entries of an archive in the form of the log.
func readTarGz(data []byte) []any {
	whole := must(io.ReadAll(must(gzip.NewReader(bytes.NewReader(data))))) // including data after the end of the archive
	entries := []any{}
	for tr := tar.NewReader(bytes.NewReader(whole)); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return entries
		}
		check(err)
		entries = append(entries, object{
			"name": h.Name, "mode": fmt.Sprintf("0%03o", h.Mode&0o7777), "size": float64(h.Size),
			"type": cmp.Or(tarTypes[h.Typeflag], string(rune(h.Typeflag))), "sha256": sha256Hex(must(io.ReadAll(tr))),
		})
	}
}
