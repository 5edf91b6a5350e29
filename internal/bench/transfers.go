package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-vercel/sandbox"
)

func dataFile(name string) string { return filepath.Join(os.Getenv("PERF_DATA"), name) }

// upload writes files to a new sandbox.
func upload(ctx context.Context, r *run, size int64, files func() ([]sandbox.File, error)) error {
	sb, err := create(ctx)
	if err != nil {
		return err
	}
	r.Work = work{"bytes", size}
	return r.timed(func() error {
		list, err := files()
		if err != nil {
			return err
		}
		return sb.WriteFiles(ctx, list, nil)
	})
}

// head reads the first n bytes of an upload's input.
func head(name string, n int64) ([]byte, error) {
	f, err := os.Open(dataFile(name))
	if err != nil {
		return nil, err
	}
	data := make([]byte, n)
	_, err = io.ReadFull(f, data)
	return data, errors.Join(err, f.Close())
}

func uploadBytes(ctx context.Context, r *run) error {
	size, err := r.int("bytes")
	if err != nil {
		return err
	}
	data, err := head(r.args["file"], size)
	if err != nil {
		return err
	}
	return upload(ctx, r, size, func() ([]sandbox.File, error) {
		return []sandbox.File{{Path: "big.bin", Content: data}}, nil
	})
}

func uploadFile(ctx context.Context, r *run) error {
	size, err := r.int("bytes")
	if err != nil {
		return err
	}
	return upload(ctx, r, size, func() ([]sandbox.File, error) {
		return []sandbox.File{{Path: "big.bin", Size: size, Open: func() (io.ReadCloser, error) {
			f, err := os.Open(dataFile(r.args["file"]))
			if err != nil {
				return nil, err
			}
			return struct {
				io.Reader
				io.Closer
			}{io.LimitReader(f, size), f}, nil
		}}}, nil
	})
}

func uploadMany(ctx context.Context, r *run) error {
	n, err := r.int("files")
	if err != nil {
		return err
	}
	size, err := r.int("size")
	if err != nil {
		return err
	}
	data, err := head(r.args["file"], n*size)
	if err != nil {
		return err
	}
	return upload(ctx, r, n*size, func() ([]sandbox.File, error) {
		files := make([]sandbox.File, n)
		for i := range files {
			start := int64(i) * size
			files[i] = sandbox.File{Path: fmt.Sprintf("many/%05d.txt", i), Content: data[start : start+size]}
		}
		return files, nil
	})
}

func downloadStream(ctx context.Context, r *run) error {
	want, err := r.int("bytes")
	if err != nil {
		return err
	}
	sb, err := create(ctx)
	if err != nil {
		return err
	}
	r.Work = work{"bytes", want}
	return r.timed(func() error {
		content, err := sb.ReadFile(ctx, fmt.Sprintf("/gen/%d", want), nil)
		if err != nil {
			return err
		}
		var got counter
		_, err = io.Copy(&got, content)
		r.received(int64(got), want)
		return errors.Join(err, content.Close())
	})
}

func downloadFile(ctx context.Context, r *run) (err error) {
	want, err := r.int("bytes")
	if err != nil {
		return err
	}
	sb, err := create(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(os.Getenv("PERF_TMP"), "bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	name := filepath.Join(dir, "file")
	r.Work = work{"bytes", want}
	err = r.timed(func() error { return sb.DownloadFile(ctx, fmt.Sprintf("/gen/%d", want), name, nil) })
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	r.received(info.Size(), want)
	return nil
}
