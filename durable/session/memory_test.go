package session

import (
	"bytes"
	"context"
	"io"
	"io/fs"

	"github.com/go-vercel/sandbox/durable"
)

// memory is a store in memory.
type memory map[string][]byte

type memoryWriter struct {
	bytes.Buffer
	m   memory
	key string
}

func (w *memoryWriter) Commit() error { w.m[w.key] = w.Bytes(); return nil }

func (w *memoryWriter) Close() error { return nil }

func (m memory) Create(_ context.Context, key string) (durable.OutputWriter, error) {
	return &memoryWriter{m: m, key: key}, nil
}

func (m memory) Open(_ context.Context, key string) (io.ReadCloser, error) {
	data, ok := m[key]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (m memory) Remove(context.Context, string) error { return nil }
