package sandbox

import (
	"reflect"
	"sync"
)

// Handle is a [*Sandbox], [*Session], [*Command], [*CommandResult], [*Snapshot]
// or [*Drive].
type Handle interface{ bind(*Client) }

// Bind makes handles that came from JSON use c, which otherwise use
// [DefaultClient]. It makes no request. Handles that are nil are left out.
func (c *Client) Bind(handles ...Handle) {
	for _, h := range handles {
		if v := reflect.ValueOf(h); v.IsValid() && !v.IsNil() {
			h.bind(c)
		}
	}
}

// bound is what handles have in common.
type bound struct {
	mu sync.Mutex
	c  *Client // nil until needed, for handles from JSON
}

func (b *bound) bind(c *Client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.c = c
}

// clientLocked returns the handle's client, or the default one.
func (b *bound) clientLocked() (*Client, error) {
	if b.c == nil {
		c, err := DefaultClient()
		if err != nil {
			return nil, err
		}
		b.c = c
	}
	return b.c, nil
}
