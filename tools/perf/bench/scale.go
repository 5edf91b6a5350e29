package main

import (
	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/tools/perf/kit"
)

// scale follows the command of each of many sandboxes.
func scale(r *kit.Run) error {
	ctx := r.Context()
	c, err := newClient(nil)
	if err != nil {
		return err
	}
	return r.Follow(func(lines, pause string) (func() (int64, error), error) {
		sb, err := c.Create(ctx, nil)
		if err != nil {
			return nil, err
		}
		cmd, err := sb.StartCommand(ctx, "tick", []string{lines, pause}, nil)
		if err != nil {
			return nil, err
		}
		return func() (n int64, err error) {
			for entry, err := range cmd.Logs(ctx) {
				if err != nil {
					return n, err
				}
				if entry.Stream == sandbox.Stdout {
					n++
				}
			}
			return n, nil
		}, nil
	})
}
