// Package sealed encrypts what an output store keeps: outputs, old events and commands.
package sealed

import (
	"context"
	"crypto/cipher"
	"encoding/json"
	"fmt"
	"io"

	"github.com/go-vercel/sandbox/durable"
)

// Store seals the pieces of an object, each bound to the object's key and its place, and then
// an empty one. AEAD makes its nonces itself, like that of cipher.NewGCMWithRandomNonce.
type Store struct {
	durable.OutputStore
	AEAD cipher.AEAD
}

func place(key string, n int) []byte { return fmt.Append(nil, n, " "+key) }

func (s Store) Create(ctx context.Context, key string) (durable.OutputWriter, error) {
	w, err := s.OutputStore.Create(ctx, key)
	n, to := 0, json.NewEncoder(w)
	return &writer{w, func(data []byte) error {
		n++
		return to.Encode(s.AEAD.Seal(nil, nil, data, place(key, n)))
	}}, err
}

type writer struct {
	durable.OutputWriter
	seal func(data []byte) error
}

func (w *writer) Write(data []byte) (n int, err error) {
	if len(data) > 0 {
		err = w.seal(data)
	}
	return len(data), err
}

func (w *writer) Commit() error {
	if err := w.seal(nil); err != nil {
		return err
	}
	return w.OutputWriter.Commit()
}

func (s Store) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	sealed, err := s.OutputStore.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	plain, to := io.Pipe()
	go func() {
		defer sealed.Close()
		var box, data []byte
		for n, from := 1, json.NewDecoder(sealed); err == nil; n++ {
			if err = from.Decode(&box); err != nil {
				err = fmt.Errorf("sealed: %q is cut off: %s", key, err.Error()) // never an io.EOF
			} else if data, err = s.AEAD.Open(nil, nil, box, place(key, n)); err == nil && len(data) == 0 {
				err = io.EOF
			} else if err == nil {
				_, err = to.Write(data)
			}
		}
		to.CloseWithError(err)
	}()
	return plain, nil
}
