package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/oidc"
)

// gatewayURL is where Vercel's AI Gateway takes requests of Anthropic's API.
const gatewayURL = "https://ai-gateway.vercel.sh"

// defineAI defines --ai, of create, sh, run, exec and connect.
func defineAI(flags *pflag.FlagSet, target *bool) {
	toggle(flags, target, "ai", "", "Set AI_GATEWAY_API_KEY, ANTHROPIC_AUTH_TOKEN and ANTHROPIC_BASE_URL for Vercel's AI Gateway; "+
		"programs in the sandbox can read the token, which is the project's")
}

// withAI adds to an environment what programs need for the AI Gateway, if it is
// wanted. What the user has given stays.
func (c *connection) withAI(ctx context.Context, wanted bool, env sandbox.Env) (sandbox.Env, error) {
	if !wanted {
		return env, nil
	}
	token, err := c.gatewayToken(ctx)
	if err != nil {
		return nil, err
	}
	all := sandbox.Env{"AI_GATEWAY_API_KEY": token, "ANTHROPIC_AUTH_TOKEN": token, "ANTHROPIC_BASE_URL": gatewayURL}
	maps.Copy(all, env)
	return all, nil
}

// gatewayToken is an OIDC token of the project: the program's own, or one that the
// API gives for it. There is one request for it.
func (c *connection) gatewayToken(ctx context.Context) (string, error) {
	if c.opts.local {
		return "", usagef("--ai needs a sandbox on Vercel: the emulator has no AI Gateway")
	}
	if _, err := c.connect(ctx); err != nil {
		return "", err
	}
	c.connecting.Lock()
	defer c.connecting.Unlock()
	if c.gateway != "" {
		return c.gateway, nil
	}
	if _, err := oidc.ParseClaims(c.scope.Token); err == nil {
		c.gateway = c.scope.Token
		return c.gateway, nil
	}
	token, err := c.pullToken(ctx)
	c.gateway = token
	return token, err
}

// pullToken asks the API for the project's token.
func (c *connection) pullToken(ctx context.Context) (string, error) {
	address := c.base() + "/v3/env/pull/" + url.PathEscape(c.scope.ProjectID) + "?" + url.Values{"teamId": {c.scope.TeamID}}.Encode()
	resp, err := c.request(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPageBody))
	if err != nil {
		return "", err
	}
	var answer struct {
		Env struct {
			Token string `json:"VERCEL_OIDC_TOKEN"`
		} `json:"env"`
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	readErr := json.Unmarshal(body, &answer)
	switch {
	case resp.StatusCode != http.StatusOK:
		return "", withHint(&during{&sandbox.APIError{
			Operation: "pull environment", Status: resp.StatusCode, Code: answer.Error.Code, Message: first(answer.Error.Message, resp.Status),
		}, "could not get the project's token for the AI Gateway"}, "%s", c.credentialHint())
	case readErr != nil:
		return "", fmt.Errorf("the project's environment: %w", readErr)
	case answer.Env.Token == "":
		return "", withHint(errors.New("the project has no OIDC token, which the AI Gateway takes"),
			"switch on Secure Backend Access with OIDC Federation in the project's settings")
	}
	return answer.Env.Token, nil
}
