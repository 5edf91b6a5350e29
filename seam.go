package sandbox

import (
	"context"
	"io"
)

// target is what files and processes are reached through: a Sandbox, which
// resumes itself, a Session, which does not, or a user of a sandbox.
type target interface {
	RunCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*CommandFinished, error)
	StartCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*Command, error)
	// mkdir makes one directory through the file API.
	mkdir(ctx context.Context, path string) error
	// openFile opens a file through the file API. The size is -1 when unknown.
	openFile(ctx context.Context, path, cwd string) (body io.ReadCloser, size int64, err error)
	// uploadTarGz unpacks an archive at the root; open is called anew for each
	// attempt.
	uploadTarGz(ctx context.Context, open func() (io.ReadCloser, error)) error
	Cwd() string
}

var (
	_ target = (*Sandbox)(nil)
	_ target = (*Session)(nil)
)

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

func (s *Sandbox) uploadTarGz(ctx context.Context, open func() (io.ReadCloser, error)) error {
	return withResumeDo(ctx, s, func(cur *Session) error { return cur.uploadTarGz(ctx, open) })
}
