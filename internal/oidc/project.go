package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"time"
)

// ProjectToken is an OIDC token of a project with its claims.
type ProjectToken struct {
	Token string
	Claims
}

// ProjectToken returns an OIDC token of a project: the one stored by the tools,
// or a new one obtained with the CLI's login, which is then stored for them. A
// stored token is used if it is valid for longer than ahead and is not the
// rejected one. Concurrent processes take turns.
//
// If no new token is available but the stored one has not expired yet, it is
// returned along with the error.
func (h *Host) ProjectToken(ctx context.Context, scope Scope, ahead time.Duration, refused string) (ProjectToken, error) {
	file, err := h.TokenFile(scope.ProjectID)
	if err != nil {
		return ProjectToken{}, err
	}
	good := func(t ProjectToken) bool {
		return t.Token != "" && t.Token != refused && !Expired(t.Expiry, time.Now().Add(ahead))
	}
	if stored, err := readToken(file); err != nil || good(stored) {
		return stored, err
	}
	unlock, err := lockIfPossible(ctx, file)
	if err != nil {
		return ProjectToken{}, err
	}
	defer unlock()
	stored, err := readToken(file)
	if err != nil || good(stored) {
		return stored, err
	}
	fresh, err := h.newProjectToken(ctx, scope, ahead)
	if err != nil {
		if stored.Token != "" && stored.Token != refused && !Expired(stored.Expiry, time.Now()) {
			return stored, err
		}
		return ProjectToken{}, err
	}
	// Storing only saves work: the token can be used even if the disk is not
	// writable.
	_ = storeToken(file, fresh.Token)
	return fresh, nil
}

func (h *Host) newProjectToken(ctx context.Context, scope Scope, ahead time.Duration) (ProjectToken, error) {
	doing := fmt.Sprintf("refreshing the OIDC token of project %q", scope.ProjectID)
	sealed, err := h.loginIsSealed()
	if err != nil {
		return ProjectToken{}, err
	}
	var token string
	if sealed {
		token, err = h.askCLI(ctx, scope, doing)
	} else {
		token, err = h.requestToken(ctx, scope, ahead, doing)
	}
	if err != nil {
		return ProjectToken{}, err
	}
	claims, err := ParseClaims(token)
	if err != nil {
		return ProjectToken{}, &RemoteError{doing, err}
	}
	if Expired(claims.Expiry, time.Now()) {
		return ProjectToken{}, &RemoteError{doing, errors.New("the new token has already expired: is this machine's clock right?")}
	}
	return ProjectToken{token, claims}, nil
}

// requestToken requests an OIDC token with the CLI's login.
func (h *Host) requestToken(ctx context.Context, scope Scope, ahead time.Duration, doing string) (string, error) {
	login, err := h.Login(ctx, ahead, "")
	if err != nil {
		return "", err
	}
	query := url.Values{"source": {"vercel-oidc-refresh"}}
	if scope.TeamID != "" {
		query.Set("teamId", scope.TeamID)
	}
	address := "https://api.vercel.com/v1/projects/" + url.PathEscape(scope.ProjectID) + "/token?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+login.Token)
	body, err := h.Do(req, doing)
	if err != nil {
		return "", err
	}
	return tokenOf(body, doing)
}

// tokenOf returns the token in a response of the API or of the CLI.
func tokenOf(body []byte, doing string) (string, error) {
	var resp struct {
		Token *string `json:"token"`
	}
	if json.Unmarshal(body, &resp) != nil || resp.Token == nil {
		return "", &RemoteError{doing, errors.New("the response has no token")}
	}
	return *resp.Token, nil
}

// readToken returns the token in a file, if any.
func readToken(file string) (ProjectToken, error) {
	o, err := readObject(file)
	if errors.Is(err, fs.ErrNotExist) {
		return ProjectToken{}, nil
	}
	if err != nil {
		return ProjectToken{}, fmt.Errorf("the stored OIDC token: %w", err)
	}
	var token string
	if err := o.get(file, "token", &token); err != nil {
		return ProjectToken{}, fmt.Errorf("the stored OIDC token: %w", err)
	}
	if token == "" {
		return ProjectToken{}, nil
	}
	claims, err := ParseClaims(token)
	if err != nil {
		return ProjectToken{}, fmt.Errorf("the stored OIDC token: %s is broken: %w", file, err)
	}
	return ProjectToken{token, claims}, nil
}

// storeToken stores a token for other processes and the official tools.
func storeToken(file, token string) error {
	o, err := readObject(file)
	if err != nil {
		o = object{}
	}
	if err := o.set("token", token); err != nil {
		return err
	}
	r, err := replace(file)
	if err != nil {
		return err
	}
	return r.commit(o)
}
