package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/go-vercel/sandbox/durable"
)

// bucket is the part of an S3 client that a store needs. With minio-go these are PutObject,
// GetObject and Stat, ListObjects, and RemoveObject.
type bucket interface {
	Put(ctx context.Context, key string, from io.Reader, size int64) error
	Get(ctx context.Context, key string) (io.ReadCloser, error) // fs.ErrNotExist if there is none
	List(ctx context.Context, prefix string) ([]string, error)
	Delete(ctx context.Context, key string) error
}

// s3Store is a durable.OutputStore. A worker that is killed during an upload leaves parts
// of it, which are billed: give the bucket a lifecycle rule with
// AbortIncompleteMultipartUpload.
type s3Store struct {
	bucket bucket
	prefix string // the start of every key, ending with a slash
}

func checkKey(key string) error {
	if !fs.ValidPath(key) || key == "." {
		return fmt.Errorf("%q is not a valid key", key)
	}
	return nil
}

// Create writes to a temporary file, which Commit uploads: S3 replaces an object at the
// end of its upload.
func (s *s3Store) Create(ctx context.Context, key string) (durable.OutputWriter, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp("", "sandbox-output-*")
	return &upload{f, func(r io.Reader, size int64) error { return s.bucket.Put(ctx, s.prefix+key, r, size) }}, err
}

func (s *s3Store) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return s.bucket.Get(ctx, s.prefix+key)
}

func (s *s3Store) Remove(ctx context.Context, prefix string) error {
	key, ok := strings.CutSuffix(prefix, "/")
	if err := checkKey(key); err != nil || !ok {
		return errors.Join(fmt.Errorf("%q is not a prefix of outputs", prefix), err)
	}
	keys, err := s.bucket.List(ctx, s.prefix+prefix)
	for _, key := range keys {
		err = errors.Join(err, s.bucket.Delete(ctx, key))
	}
	return err
}

// upload is a durable.OutputWriter.
type upload struct {
	*os.File
	put func(r io.Reader, size int64) error
}

func (u *upload) Commit() error {
	size, err := u.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := u.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return u.put(u.File, size)
}

func (u *upload) Close() error { return errors.Join(u.File.Close(), os.Remove(u.Name())) }

// memory is a bucket for the example.
type memory struct {
	mu  sync.Mutex
	all map[string][]byte
}

func (m *memory) Put(_ context.Context, key string, from io.Reader, size int64) error {
	data, err := io.ReadAll(io.LimitReader(from, size))
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[key] = data
	return nil
}

func (m *memory) Get(_ context.Context, key string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.all[key]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: key, Err: fs.ErrNotExist}
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (m *memory) List(_ context.Context, prefix string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(m.all)), func(key string) bool { return !strings.HasPrefix(key, prefix) }), nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
	return nil
}

// Workers and clients keep their output in S3:
//
//	session.Register(w, &durable.Worker{Client: sandboxes, Output: store})
//	sessions := session.New(c, &session.Options{Sandbox: sandboxes, Output: store})
func ExampleOutputStore() {
	ctx := context.Background()
	var store durable.OutputStore = &s3Store{&memory{all: map[string][]byte{}}, "sandbox/"}
	w, err := store.Create(ctx, "session/output")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	fmt.Fprint(w, "kept")
	if err := w.Commit(); err != nil {
		fmt.Println(err)
		return
	}
	r, err := store.Open(ctx, "session/output")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	fmt.Println(string(data), err)
	// Output: kept <nil>
}
