package conformance

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
)

// tarTypes are the names of the entry types in a log.
var tarTypes = map[byte]string{
	tar.TypeReg: "file", tar.TypeLink: "link", tar.TypeSymlink: "symlink", tar.TypeChar: "char",
	tar.TypeBlock: "block", tar.TypeDir: "directory", tar.TypeFifo: "fifo",
}

// readTarGz lists the entries of an archive in the form of the log.
func readTarGz(data []byte) (entries []any, err error) {
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	whole, err := io.ReadAll(zr) // with what comes after the end of the archive
	entries = []any{}
	for tr := tar.NewReader(bytes.NewReader(whole)); err == nil; {
		h, next := tr.Next()
		if next == io.EOF {
			return entries, nil
		}
		var content []byte
		if err = next; err == nil {
			content, err = io.ReadAll(tr)
			entry := object{
				"name": h.Name, "mode": fmt.Sprintf("0%03o", h.Mode&0o7777), "size": float64(h.Size),
				"type": cmp.Or(tarTypes[h.Typeflag], string(rune(h.Typeflag))), "sha256": sha256Hex(content),
			}
			if h.Linkname != "" {
				entry["linkname"] = h.Linkname
			}
			entries = append(entries, entry)
		}
	}
	return nil, err
}
