package sandbox

import (
	"context"
	"io"
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
	Cwd() string
	// client returns the client that makes the requests.
	client() (*Client, error)
	named
}

var (
	_ target = (*Sandbox)(nil)
	_ target = (*Session)(nil)
)

func (s *Sandbox) begin(ctx, live context.Context, name string, args []string, o *CommandOptions, followed bool) (*Command, *follower, error) {
	var f *follower
	cmd, err := withResume(ctx, s, func(cur *Session) (cmd *Command, err error) {
		cmd, f, err = cur.begin(ctx, live, name, args, o, followed)
		return cmd, err
	})
	return cmd, f, err
}

func (s *Sandbox) mkdir(ctx context.Context, path string) error {
	return withResumeDo(ctx, s, func(cur *Session) error { return cur.mkdir(ctx, path) })
}

func (s *Sandbox) openFile(ctx context.Context, path, cwd string) (io.ReadCloser, int64, error) {
	type opened struct {
		body io.ReadCloser
		size int64
	}
	o, err := withResume(ctx, s, func(cur *Session) (opened, error) {
		body, size, err := cur.openFile(ctx, path, cwd)
		return opened{body, size}, err
	})
	return o.body, o.size, err
}

func (s *Sandbox) uploadTarGz(ctx context.Context, open func(cwd string) (io.ReadCloser, error)) (int64, error) {
	return withResume(ctx, s, func(cur *Session) (int64, error) { return cur.uploadTarGz(ctx, open) })
}
