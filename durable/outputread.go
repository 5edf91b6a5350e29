package durable

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"

	"github.com/go-vercel/sandbox/internal/entry"
)

// ReadOutput iterates over the stored output of a command. It starts at the record that
// contains byte number skip, or at an earlier one. If the store's readers are an
// [io.Seeker], as those of [Dir] are, it does not read everything before that. The error
// matches [fs.ErrNotExist] if nothing is stored under the key.
func ReadOutput(ctx context.Context, store OutputStore, key string, skip int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := entry.Check(ctx, true, "durable", ""); err != nil {
			yield(Record{}, err)
			return
		}
		if store == nil {
			yield(Record{}, fs.ErrNotExist)
			return
		}
		r, err := store.Open(ctx, key)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer r.Close()
		if file, ok := r.(io.ReadSeeker); ok && skip > 0 {
			if err := seekRecord(file, skip); err != nil {
				yield(Record{}, err)
				return
			}
		}
		for dec := json.NewDecoder(r); ; {
			var rec Record
			err := dec.Decode(&rec)
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// seekRecord stops its search when the range that contains the record has at most
// scanBytes.
const scanBytes = 256 << 10

// seekRecord moves to the start of a record shortly before the byte number skip.
func seekRecord(file io.ReadSeeker, skip int64) error {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	start := int64(0)
	for end-start > scanBytes {
		middle := start + (end-start)/2
		if _, err := file.Seek(middle, io.SeekStart); err != nil {
			return err
		}
		r := bufio.NewReader(file)
		half, err := r.ReadBytes('\n')
		var line []byte
		if err == nil {
			line, err = r.ReadBytes('\n')
		}
		var rec Record
		switch {
		case errors.Is(err, io.EOF):
			end = middle
			continue
		case err != nil:
			return err
		}
		if err := json.Unmarshal(line, &rec); err != nil {
			return err
		}
		if rec.At <= skip {
			start = middle + int64(len(half))
		} else {
			end = middle
		}
	}
	_, err = file.Seek(start, io.SeekStart)
	return err
}
