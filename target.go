package sandbox

import (
	"context"
	"io"
	"net/http"

	"github.com/go-vercel/sandbox/internal/api"
)

// target is what files and processes are reached through: a Sandbox, which is
// resumed, a Session, which is not, or a User of a sandbox.
type target interface {
	RunCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*CommandResult, error)
	// begin starts a command; see Session.begin.
	begin(ctx, live context.Context, name string, args []string, o *CommandOptions, followed bool) (*Command, *follower, error)
	// mkdir creates one directory through the file API.
	mkdir(ctx context.Context, path string) error
	// openFile opens a file through the file API. The size is -1 if unknown.
	openFile(ctx context.Context, path, cwd string) (body io.ReadCloser, size int64, err error)
	// uploadTarGz unpacks an archive at the root. open is called for each
	// attempt, with the working directory of the session that receives it. It
	// returns how many bytes were sent.
	uploadTarGz(ctx context.Context, open func(cwd string) (io.ReadCloser, error)) (sent int64, err error)
	cwd() string
	// client returns the client that makes the requests.
	client() (*Client, error)
	named
}

var (
	_ target = (*Sandbox)(nil)
	_ target = (*Session)(nil)
)

func (s *Session) mkdir(ctx context.Context, path string) error {
	return s.do(ctx, api.MakeDir, struct {
		Path string `json:"path"`
	}{path}, nil)
}

// openFile opens a file for reading. The size is -1 if the API does not report
// it.
func (s *Session) openFile(ctx context.Context, path, cwd string) (io.ReadCloser, int64, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, 0, err
	}
	resp, err := c.stream(ctx, &api.Request{Op: api.ReadFile, Path: []string{s.ID()}, Body: struct {
		Path string `json:"path"`
		Cwd  string `json:"cwd,omitempty"`
	}{path, cwd}})
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}

// uploadTarGz unpacks a gzipped tar archive, whose names are relative to the
// root. open is called for each attempt.
func (s *Session) uploadTarGz(ctx context.Context, open func(cwd string) (io.ReadCloser, error)) (sent int64, err error) {
	c, err := enter(ctx, s)
	if err != nil {
		return 0, err
	}
	cwd := s.cwd()
	req := &api.Request{Op: api.WriteFiles, Path: []string{s.ID()}, Open: func() (io.ReadCloser, error) { return open(cwd) }, Header: http.Header{
		"Content-Type": {"application/gzip"}, "X-Cwd": {"/"},
	}}
	err = c.do(ctx, req, nil)
	return req.Sent, err
}
