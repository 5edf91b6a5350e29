// Package s3store keeps the output of durable commands in S3, or in any store
// that speaks its protocol.
//
//	mc, err := minio.New("s3.eu-central-1.amazonaws.com", &minio.Options{Creds: credentials.NewIAM(""), Secure: true})
//	store := &s3store.Store{Client: mc, Bucket: "my-bucket", Prefix: "sandbox/"}
//	session.Register(w, &durable.Worker{Client: sandboxes, Output: store})
//
// A worker that is killed in the middle of a large upload leaves parts of it,
// which are invisible but billed: give the bucket a lifecycle rule with
// AbortIncompleteMultipartUpload.
package s3store

import (
	"context"
	"errors"
	"io"

	"github.com/minio/minio-go/v7"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/examples/stores/internal/spool"
)

// Store is a durable.OutputStore.
type Store struct {
	Client *minio.Client
	Bucket string
	// Prefix is put before each key, with its slash.
	Prefix string
}

// Create writes to a temporary file, which Commit uploads: an object is replaced
// by a whole one at the end of its upload.
func (s *Store) Create(ctx context.Context, key string) (durable.OutputWriter, error) {
	if err := spool.CheckKey(key); err != nil {
		return nil, err
	}
	return spool.New(func(r io.Reader, size int64) error {
		_, err := s.Client.PutObject(ctx, s.Bucket, s.Prefix+key, r, size, minio.PutObjectOptions{ContentType: "application/x-ndjson"})
		return err
	})
}

// Open reads an object, in one request after that for its size.
func (s *Store) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := spool.CheckKey(key); err != nil {
		return nil, err
	}
	o, err := s.Client.GetObject(ctx, s.Bucket, s.Prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	// It asks for the object only when it has to.
	if _, err := o.Stat(); err != nil {
		_ = o.Close()
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
			err = spool.Missing(key)
		}
		return nil, err
	}
	return o, nil
}

// Remove removes the objects below a prefix.
func (s *Store) Remove(ctx context.Context, prefix string) error {
	if err := spool.CheckPrefix(prefix); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing when a removal has failed
	list := s.Client.ListObjects(ctx, s.Bucket, minio.ListObjectsOptions{Prefix: s.Prefix + prefix, Recursive: true})
	var errs []error
	for o := range list {
		if o.Err != nil {
			errs = append(errs, o.Err)
			continue
		}
		errs = append(errs, s.Client.RemoveObject(ctx, s.Bucket, o.Key, minio.RemoveObjectOptions{}))
	}
	return errors.Join(errs...)
}
