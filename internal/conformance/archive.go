package conformance

import (
	"archive/tar"
	"bytes"
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
func readTarGz(data []byte) ([]any, error) {
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	entries := []any{}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if err == io.EOF {
			// Anything after the end of the archive must be intact, too.
			if _, err := io.Copy(io.Discard, zr); err != nil {
				return nil, err
			}
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			return nil, err
		}
		entry := object{
			"name": h.Name, "mode": fmt.Sprintf("0%03o", h.Mode&0o7777), "size": float64(h.Size),
			"sha256": sha256Hex(content),
		}
		if name, ok := tarTypes[h.Typeflag]; ok {
			entry["type"] = name
		} else {
			entry["type"] = string(rune(h.Typeflag))
		}
		if h.Linkname != "" {
			entry["linkname"] = h.Linkname
		}
		entries = append(entries, entry)
	}
}
