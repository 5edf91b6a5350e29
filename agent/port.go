package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox"
)

type portInput struct {
	Port int     `json:"port" is:"from 1024 to 65535"`
	Wait float64 `json:"wait_seconds,omitempty" is:"how long to wait for an answer; 10 by default, 60 at most"`
}

func portURL(ctx context.Context, c *call, in *portInput) (Result, error) {
	address, err := c.sb.URL(in.Port)
	if errors.Is(err, sandbox.ErrNoRoute) {
		ports := []int{in.Port}
		for _, r := range c.sb.Routes() {
			ports = append(ports, r.Port)
		}
		if err := c.sb.Update(ctx, &sandbox.UpdateOptions{Ports: ports}); err != nil {
			return Result{}, err
		}
		address, err = c.sb.URL(in.Port)
	}
	if err != nil {
		return Result{}, err
	}
	seconds := min(in.Wait, maxWait)
	if in.Wait <= 0 {
		seconds = 10
	}
	wait, cancel := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
	defer cancel()
	_, err = c.sb.WaitForPort(wait, in.Port, nil)
	state := "A server answers there."
	switch {
	case ctx.Err() != nil, errors.Is(err, sandbox.ErrStopped):
		return Result{}, err
	case err != nil:
		state = "Nothing answers there yet: is the server running, and does it listen on 0.0.0.0?"
	}
	return Result{Text: fmt.Sprintf("Port %d: %s %s", in.Port, oneLine(address), state), Data: map[string]any{"url": address}}, nil
}
