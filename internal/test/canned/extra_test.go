package canned_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// TestExtra: the client refuses an additional parameter that has its own field or that can't
// be encoded. It sends no request, and prints no value of the parameters.
func TestExtra(t *testing.T) {
	t.Parallel()
	c, ctx := noRequests(t).Client(t), t.Context()
	create := func(o sandbox.CreateOptions) error { _, err := c.Create(ctx, &o); return err }
	region, function := map[string]any{"region": "hush"}, map[string]any{"x": func() {}}
	sb := &sandbox.Sandbox{}
	require.NoError(t, sb.UnmarshalJSON([]byte(`{"sandboxMetadata":{"name":"box"}}`)))
	c.Bind(sb)
	for name, err := range map[string]error{
		"create":          create(sandbox.CreateOptions{Extra: region}),
		"create: type":    create(sandbox.CreateOptions{Extra: function}),
		"create: project": create(sandbox.CreateOptions{Extra: map[string]any{"projectId": "prj_1"}}),
		"credentials":     create(sandbox.CreateOptions{Credentials: &sandbox.Credentials{Extra: map[string]any{"npm": false}}}),
		"credential type": create(sandbox.CreateOptions{Credentials: &sandbox.Credentials{Extra: function}}),
		"fork":            func() error { _, err := c.Fork(ctx, "box", &sandbox.ForkOptions{Extra: region}); return err }(),
		"update":          sb.Update(ctx, &sandbox.UpdateOptions{Extra: region}),
		"get": func() error {
			_, err := c.Get(ctx, "box", &sandbox.GetOptions{Extra: map[string]any{"resume": false}})
			return err
		}(),
	} {
		assert.ErrorIs(t, err, sandbox.ErrInvalid, name)
		assert.ErrorContains(t, err, "Extra", name)
	}
	extra := map[string]any{"x": "hush"}
	for _, v := range []any{
		sandbox.CreateOptions{Extra: extra}, sandbox.ForkOptions{Extra: extra}, sandbox.UpdateOptions{Extra: extra},
		sandbox.GetOptions{Extra: extra}, sandbox.Credentials{Extra: extra},
	} {
		assert.NotContains(t, fmt.Sprintf("%v %+v %#v", v, v, v), "hush")
	}
}
