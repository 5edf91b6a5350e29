package sandbox

import "context"

// Mkdir makes a directory, in one request of the file API and without more
// meaning than that has: see [FileSystem.Mkdir] and [FileSystem.MkdirAll] for
// errors that can be told apart. The path is sent as it is given.
func (s *Sandbox) Mkdir(ctx context.Context, path string) error { return s.mkdir(ctx, path) }

// Mkdir is as [Sandbox.Mkdir], but does not resume a session that has stopped.
func (s *Session) Mkdir(ctx context.Context, path string) error { return s.mkdir(ctx, path) }
