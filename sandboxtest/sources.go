package sandboxtest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// The kinds of sources.
const (
	sourceGit      = "git"
	sourceTarball  = "tarball"
	sourceSnapshot = "snapshot"
)

func (src *source) check() error {
	switch src.Type {
	case sourceSnapshot:
		if src.SnapshotID == "" {
			return reply.Invalid("`source` missing required property `snapshotId`.")
		}
		return nil
	case sourceGit, sourceTarball:
	default:
		return reply.Invalid("`source.type` should be equal to one of the allowed values \"git, tarball, snapshot\".")
	}
	u, err := url.Parse(src.URL)
	if err != nil || u.Scheme == "" || strings.HasPrefix(src.URL, "-") {
		return reply.Invalid("`source.url` should match format \"uri\".")
	}
	if src.Type == sourceTarball {
		if u.Scheme != "http" && u.Scheme != "https" {
			return reply.Invalid("`source.url` of a tarball should be an http or https URL.")
		}
		return nil
	}
	switch {
	case src.Depth != nil && *src.Depth < 1:
		return reply.Invalid("`source.depth` should be >= 1.")
	case strings.HasPrefix(src.Revision, "-") || strings.ContainsAny(src.Revision, " \n\x00"):
		return reply.Invalid("`source.revision` is not a revision")
	case (src.Username == "") != (src.Password == ""):
		return reply.Invalid("`source` should have `username` and `password` together.")
	}
	return nil
}

// fill writes the source's files into the working directory of a new machine. pause is
// how long a server may send nothing.
func (src *source) fill(ctx context.Context, m *box.Box, policy *firewall.Policy, version int, pause time.Duration) error {
	if src.Type == sourceGit {
		// Newer versions of the API clone a repository into its own directory.
		dir := "."
		if version >= 3 {
			dir = src.repositoryName()
		}
		return src.clone(ctx, m, dir)
	}
	return src.unpack(ctx, m, policy, pause)
}

// unpack downloads a tarball and unpacks it. It gives up if the server sends nothing for
// too long, because nobody else can use the sandbox's name meanwhile.
func (src *source) unpack(ctx context.Context, m *box.Box, policy *firewall.Policy, pause time.Duration) error {
	ctx, body, stop := limitSilence(ctx, pause)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, src.URL, nil)
	if err != nil {
		return reply.Invalid("`source.url` should match format \"uri\".")
	}
	if !policy.AllowsURL(req.URL) {
		return reply.BadRequest("Downloading the tarball failed: the network policy denies it.")
	}
	// Use a separate client, so that its connections are closed afterwards.
	transport := &http.Transport{Proxy: proxyExceptHost, DisableKeepAlives: true, DialContext: firewall.Dial}
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		switch {
		case len(via) >= 10:
			return errors.New("too many redirects")
		case !policy.AllowsURL(next.URL):
			return firewall.ErrDenied
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // the URL may hold a password
		}
		return reply.BadRequest("Downloading the tarball failed: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return reply.BadRequest("Downloading the tarball failed: the server answered %d", resp.StatusCode)
	}
	body.r = resp.Body
	archive, closeArchive, err := gzipped(body)
	if err != nil && ctx.Err() == nil {
		return reply.BadRequest("Uncompressing the tarball failed: %v", err)
	}
	if err == nil {
		defer closeArchive()
		err = m.Extract(ctx, archive, "")
	}
	if err != nil && ctx.Err() != nil {
		return reply.BadRequest("Downloading the tarball failed: %v", context.Cause(ctx))
	}
	if err != nil {
		return reply.BadRequest("Uncompressing the tarball failed: %v", err)
	}
	return nil
}

// limitSilence returns a context that ends when the body has not been read for pause.
func limitSilence(ctx context.Context, pause time.Duration) (context.Context, *limitedBody, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	silence := time.AfterFunc(pause, func() { cancel(fmt.Errorf("its server has sent nothing for %v", pause)) })
	return ctx, &limitedBody{silence: silence, pause: pause}, func() { silence.Stop(); cancel(nil) }
}

// limitedBody is a stream whose sender may pause for a limited time between reads.
type limitedBody struct {
	r       io.Reader
	silence *time.Timer
	pause   time.Duration
}

func (b *limitedBody) Read(p []byte) (int, error) {
	b.silence.Reset(b.pause)
	return b.r.Read(p)
}

// proxyExceptHost returns the environment's proxy. For HostName it returns none, because
// the proxy does not know that name.
func proxyExceptHost(r *http.Request) (*url.URL, error) {
	if strings.EqualFold(r.URL.Hostname(), HostName) {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// otherFormats lists formats that users often mistake for a tarball, with their first
// bytes.
var otherFormats = []struct{ magic, name string }{
	{"BZh", "compressed with bzip2"},
	{"\xfd7zXZ\x00", "compressed with xz"},
	{"(\xb5/\xfd", "compressed with zstd"},
	{"LZIP", "compressed with lzip"},
	{"\x04\"M\x18", "compressed with lz4"},
	{"\x1f\x9d", "compressed with compress"},
	{"PK\x03\x04", "a zip file"},
}

// gzipped returns a tarball compressed with gzip, which Box.Extract requires. It compresses
// a tarball that is not compressed.
func gzipped(r io.Reader) (io.Reader, func(), error) {
	br := bufio.NewReader(r)
	magic, err := br.Peek(2)
	if err != nil {
		return nil, nil, fmt.Errorf("it is empty: %w", err)
	}
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return br, func() {}, nil
	}
	for _, other := range otherFormats {
		if start, _ := br.Peek(len(other.magic)); string(start) == other.magic {
			return nil, nil, fmt.Errorf("it is %s: make it with tar -czf", other.name)
		}
	}
	pr, pw := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		zw, _ := gzip.NewWriterLevel(pw, gzip.NoCompression) // a valid level
		_, err := io.Copy(zw, br)
		pw.CloseWithError(errors.Join(err, zw.Close()))
	})
	return pr, func() { pr.Close(); wg.Wait() }, nil
}
