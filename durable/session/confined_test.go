package session_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// payment is a cluster with a workflow that is not a session. It also has a query "state"
// and an update "destroy".
type payment struct {
	client.Client
	asked []string
}

func (p *payment) ask(what string) error {
	p.asked = append(p.asked, what)
	return errors.New("it was asked")
}

func (*payment) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return executionOf("Payment"), nil
}

func (p *payment) QueryWorkflowWithOptions(_ context.Context, o *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	if err := p.ask(o.QueryType); err != nil {
		return nil, err
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(session.State{Error: "card 4111"})
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: client.NewValue(payloads)}, err
}

func (p *payment) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	return nil, p.ask(o.UpdateName)
}

func (p *payment) GetWorkflowHistory(context.Context, string, string, bool, enums.HistoryEventFilterType) client.HistoryEventIterator {
	_ = p.ask("history")
	return nil
}

// ExecuteWorkflow returns the running workflow, as the client asks.
func (*payment) ExecuteWorkflow(context.Context, client.StartWorkflowOptions, any, ...any) (client.WorkflowRun, error) {
	return nil, nil //nolint:nilnil // sessions ignore it
}

// TestOnlySessions: none of the client's methods and no route reaches a workflow of the
// namespace that is not a session.
func TestOnlySessions(t *testing.T) {
	const id = "payment-17"
	srv := sandboxtest.New(t, nil)
	methods := map[string]func(ctx context.Context, c *session.Client) error{
		"Start": func(ctx context.Context, c *session.Client) error {
			_, err := c.Start(ctx, &session.StartOptions{ID: id})
			return err
		},
		"Command": func(ctx context.Context, c *session.Client) error {
			_, err := c.Command(ctx, id, session.Command{Command: "id"})
			return err
		},
		"Interrupt": func(ctx context.Context, c *session.Client) error { return c.Interrupt(ctx, id, "", 2) },
		"Destroy":   func(ctx context.Context, c *session.Client) error { return c.Destroy(ctx, id, nil) },
		"State":     func(ctx context.Context, c *session.Client) error { _, err := c.State(ctx, id); return err },
		"Hold":      func(ctx context.Context, c *session.Client) error { _, _, err := c.Hold(ctx, id); return err },
		"Tail":      func(ctx context.Context, c *session.Client) error { _, err := c.Tail(ctx, id, 1); return err },
		"Events": func(ctx context.Context, c *session.Client) error {
			for _, err := range c.Events(ctx, id, session.Cursor{}) {
				return err
			}
			return nil
		},
	}
	for method := range reflect.TypeFor[*session.Client]().Methods() {
		if slices.Contains([]string{"Handler", "Format"}, method.Name) { // these take no ID
			continue
		}
		if call := methods[method.Name]; assert.NotNil(t, call, "what does %s do with the ID of another workflow?", method.Name) {
			p := &payment{}
			err := call(t.Context(), session.New(p, &session.Options{Sandbox: srv.Client()}))
			require.ErrorIs(t, err, session.ErrNoSession, method.Name)
			assert.Empty(t, p.asked, method.Name)
		}
	}
	for _, r := range routes {
		if !strings.Contains(r.path+r.body, "runId") {
			continue // a new session
		}
		p := &payment{}
		h := session.New(p, &session.Options{Sandbox: srv.Client()}).Handler(&session.HandlerOptions{Started: func(_ *http.Request, got string) error {
			assert.NotEqual(t, id, got)
			return errors.New("a new one")
		}})
		body := strings.Replace(r.body, `"runId":"a"`, `"runId":"`+id+`"`, 1)
		w := serve(h, r.method, strings.Replace(r.path, "=a", "="+id, 1), body)
		want := http.StatusGone
		if r.path == "/start" {
			want = http.StatusForbidden
		}
		assert.Equal(t, want, w.Code, "%s %s", r.method, r.path)
		for _, asked := range p.asked {
			assert.Equal(t, "sandbox.Session.destroy", asked, "only the new session may be destroyed")
		}
		assert.NotContains(t, w.Body.String(), "4111")
	}
}
