package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/tools/perf/kit"
)

// timeUpload measures how long it takes to write files to a new sandbox.
func timeUpload(ctx context.Context, r *kit.Run, size int64, files func() ([]sandbox.File, error)) error {
	sb, err := create(ctx, nil)
	if err != nil {
		return err
	}
	r.Bytes(size)
	return r.Timed(func() error {
		list, err := files()
		if err != nil {
			return err
		}
		return sb.WriteFiles(ctx, list, nil)
	})
}

// head reads the first n bytes of an input for uploads.
func head(name string, n int64) ([]byte, error) {
	f, err := os.Open(kit.DataFile(name))
	if err != nil {
		return nil, err
	}
	data := make([]byte, n)
	_, err = io.ReadFull(f, data)
	return data, errors.Join(err, f.Close())
}

func uploadBytes(r *kit.Run) error {
	ctx := r.Context()
	size := r.Int("bytes")
	data, err := head(r.Str("file"), size)
	if err != nil {
		return err
	}
	return timeUpload(ctx, r, size, func() ([]sandbox.File, error) {
		return []sandbox.File{{Path: "big.bin", Content: data}}, nil
	})
}

func uploadFile(r *kit.Run) error {
	ctx := r.Context()
	size := r.Int("bytes")
	f, err := os.Open(kit.DataFile(r.Str("file")))
	if err != nil {
		return err
	}
	defer f.Close()
	return timeUpload(ctx, r, size, func() ([]sandbox.File, error) {
		return []sandbox.File{{Path: "big.bin", Reader: io.NewSectionReader(f, 0, size)}}, nil
	})
}

func uploadMany(r *kit.Run) error {
	ctx := r.Context()
	n := r.Int("files")
	size := r.Int("size")
	data, err := head(r.Str("file"), n*size)
	if err != nil {
		return err
	}
	return timeUpload(ctx, r, n*size, func() ([]sandbox.File, error) {
		files := make([]sandbox.File, n)
		for i := range files {
			start := int64(i) * size
			files[i] = sandbox.File{Path: kit.ManyName(i), Content: data[start : start+size]}
		}
		return files, nil
	})
}

func downloadStream(r *kit.Run) error {
	ctx := r.Context()
	want := r.Int("bytes")
	sb, err := create(ctx, nil)
	if err != nil {
		return err
	}
	r.Bytes(want)
	return r.Timed(func() error {
		content, err := sb.FS().Open(ctx, fmt.Sprintf("/gen/%d", want), nil)
		if err != nil {
			return err
		}
		var got counter
		_, err = io.Copy(&got, content)
		r.Expect(int64(got), want)
		return errors.Join(err, content.Close())
	})
}

func downloadFile(r *kit.Run) (err error) {
	ctx := r.Context()
	want := r.Int("bytes")
	sb, err := create(ctx, nil)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(os.Getenv("PERF_TMP"), "bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	name := filepath.Join(dir, "file")
	r.Bytes(want)
	err = r.Timed(func() error { return sb.FS().DownloadFile(ctx, fmt.Sprintf("/gen/%d", want), name, nil) })
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	r.Expect(info.Size(), want)
	return nil
}
