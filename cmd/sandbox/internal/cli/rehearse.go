package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// rehearse makes a call that reaches nobody, and returns what the SDK refuses
// before its first request: that is said before the user is asked for a login or
// shown that something goes on.
func rehearse(ctx context.Context, call func(context.Context, *sandbox.Client) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		Credentials: auth.Static(auth.Credentials{Token: "none", TeamID: "none", ProjectID: "none"}),
		BaseURL:     "https://rehearsal.invalid",
		HTTPClient:  &http.Client{Transport: nobody(cancel)},
	})
	if err != nil {
		return err
	}
	if err := call(ctx, client); errors.Is(err, sandbox.ErrInvalid) {
		return err
	}
	return nil
}

// nobody is the end of a rehearsal: what is sent was not refused.
type nobody context.CancelFunc

func (n nobody) RoundTrip(*http.Request) (*http.Response, error) {
	n()
	return nil, errors.New("this is a rehearsal")
}

// noSandbox is a handle of a sandbox that there is not.
const noSandbox = `{"metadata":{"id":"sbx_none"},"sandboxMetadata":{"name":"none"},"routes":[]}`

// rehearseUpdate returns what the SDK refuses of an update.
func rehearseUpdate(ctx context.Context, o *sandbox.UpdateOptions) error {
	return rehearse(ctx, func(ctx context.Context, client *sandbox.Client) error {
		var none sandbox.Sandbox
		if err := json.Unmarshal([]byte(noSandbox), &none); err != nil {
			return err
		}
		client.Bind(&none)
		return none.Update(ctx, o)
	})
}

// aSandbox is the handle of a sandbox that runs, for rehearsals.
const aSandbox = `{"sandboxMetadata":{"name":"none"},"metadata":{"id":"sbx_none"}}`

// rehearse returns what is wrong with a command, whose sandbox may have to be made
// first, whatever the environment and files add to it.
func (o commandOptions) rehearse(ctx context.Context, io *stdio, words []string) error {
	env, err := io.environ(slices.DeleteFunc(slices.Clone(o.env), func(p pair) bool { return p.inherit }), nil)
	if err != nil {
		return err
	}
	return rehearse(ctx, func(ctx context.Context, client *sandbox.Client) error {
		sb := new(sandbox.Sandbox)
		if err := json.Unmarshal([]byte(aSandbox), sb); err != nil {
			return err
		}
		client.Bind(sb)
		r := &remoteRun{sb: sb, o: &o}
		target, err := r.target()
		if err != nil {
			return err
		}
		_, err = target.StartCommand(ctx, words[0], words[1:], &sandbox.StartOptions{Cwd: o.workdir, Env: env, Sudo: o.sudo, Timeout: o.timeout})
		return err
	})
}
