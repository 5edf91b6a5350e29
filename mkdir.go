package sandbox

import "context"

// MkDir makes a directory, in one request of the file API and without more
// meaning than that has: see [FileSystem.Mkdir] and [FileSystem.MkdirAll] for
// errors that can be told apart. The path is sent as it is given.
func (s *Sandbox) MkDir(ctx context.Context, path string) error { return s.mkdir(ctx, path) }

// MkDir is as [Sandbox.MkDir], but does not resume a session that has stopped.
func (s *Session) MkDir(ctx context.Context, path string) error { return s.mkdir(ctx, path) }
