package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
)

// The images that the platform maintains, for [CreateOptions.Image]. Without an
// image and a runtime, a sandbox uses ImageUniversal. In all of them the user
// is ubuntu, with sudo, and the working directory is /vercel. Other images are
// named by their reference in the project's registry.
const (
	ImageUniversal = "vercel/sandbox/universal"
	ImageNode26    = "vercel/sandbox/node:26"
	ImageNode24    = "vercel/sandbox/node:24"
	ImageNode22    = "vercel/sandbox/node:22"
	ImagePython314 = "vercel/sandbox/python:3.14"
	ImageUbuntu    = "vercel/sandbox/ubuntu"
	ImageArch      = "vercel/sandbox/arch"
)

// imageInterval is the pause between checks whether an image is ready.
const imageInterval = 5 * time.Second

// doWithImage performs a create or a fork. If wait is set it retries while the
// image is not ready.
func (c *Client) doWithImage(ctx context.Context, wait bool, req *api.Request, out any) error {
	for {
		err := c.do(ctx, req, out)
		e, ok := errors.AsType[*APIError](err)
		if !wait || !ok || !errors.Is(err, ErrImageNotReady) {
			return err
		}
		if pauseErr := api.Pause(ctx, max(imageInterval, e.RetryAfter)); pauseErr != nil {
			return fmt.Errorf("%w; waiting for it: %w", err, pauseErr)
		}
	}
}
