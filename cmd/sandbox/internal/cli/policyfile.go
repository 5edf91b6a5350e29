package cli

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// maxPolicy is the maximum size of a policy file.
const maxPolicy = 1 << 20

// readPolicy reads a policy from a file or a pipe, or from standard input for "-". A
// signal ends the wait for input.
func (p *place) readPolicy(ctx context.Context, name string) (*sandbox.NetworkPolicy, error) {
	type reading struct {
		data []byte
		err  error
	}
	done := make(chan reading, 1)
	go func() {
		file, err := p.screen.In, error(nil)
		if name != "-" {
			if file, err = os.Open(name); err != nil {
				done <- reading{err: err}
				return
			}
			defer file.Close()
		}
		data, err := io.ReadAll(io.LimitReader(file, maxPolicy+1))
		done <- reading{data, err}
	}()
	var got reading
	select {
	case got = <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if got.err != nil {
		return nil, got.err
	}
	if name == "-" {
		name = "standard input"
	}
	if len(got.data) > maxPolicy {
		return nil, line.Usagef("--network-policy-file: %s has more than 1 MiB", name)
	}
	policy, err := sandbox.ParseNetworkPolicy(got.data)
	if err != nil {
		message := strings.TrimPrefix(err.Error(), "sandbox: "+sandbox.ErrInvalid.Error()+": ")
		return nil, line.Usagef("--network-policy-file: %s, %s", name, message)
	}
	return policy, nil
}
