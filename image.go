package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
)

// defaultImage is the platform's image for sandboxes that name neither an image
// nor a runtime.
const defaultImage = "vercel/sandbox/universal"

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
