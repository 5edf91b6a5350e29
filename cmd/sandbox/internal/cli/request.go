package cli

import (
	"bytes"
	"context"
	"net/http"
)

// address is where requests go, once there is a connection.
func (c *connection) address() string {
	if c.emulator != nil {
		return c.emulator.Address.URL
	}
	return c.base()
}

// maxPageBody bounds a page that is read as a whole.
const maxPageBody = 64 << 20

// request sends a request of its own, with the credentials. It follows no
// redirection, which could lead them elsewhere.
func (c *connection) request(ctx context.Context, method, address string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, usagef("%v", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.scope.Token)
	req.Header.Set("User-Agent", "sandbox-cli/"+Version())
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return client.Do(req)
}
