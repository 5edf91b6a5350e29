package sandbox

// Handle is a [*Sandbox], [*Session], [*Command], [*CommandResult], [*Snapshot]
// or [*Drive].
type Handle interface{ bind(*Client) }

// Bind makes handles that came from JSON use c, which otherwise use
// [DefaultClient]. It makes no request.
func (c *Client) Bind(handles ...Handle) {
	for _, h := range handles {
		h.bind(c)
	}
}
