package s3store_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/durable/examples/stores/s3store"
)

// TestStore: against a server that speaks S3's protocol.
func TestStore(t *testing.T) {
	srv := httptest.NewTLSServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(srv.Close)
	c, err := minio.New(strings.TrimPrefix(srv.URL, "https://"), &minio.Options{
		Creds: credentials.NewStaticV4("id", "secret", ""), Secure: true, Region: "us-east-1", Transport: srv.Client().Transport,
	})
	require.NoError(t, err)
	require.NoError(t, c.MakeBucket(t.Context(), "outputs", minio.MakeBucketOptions{}))
	durabletest.TestStore(t, &s3store.Store{Client: c, Bucket: "outputs", Prefix: "sandbox/"})
	for o := range c.ListObjects(t.Context(), "outputs", minio.ListObjectsOptions{Recursive: true}) {
		require.NoError(t, o.Err)
		require.True(t, strings.HasPrefix(o.Key, "sandbox/durabletest-"), o.Key)
	}
}
