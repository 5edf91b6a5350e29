package oidc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	apiBase = "https://vercel.com/api"
	// DefaultProject is the project used if none is named or linked.
	DefaultProject = "vercel-sandbox-default-project"
	// maxTeamPages limits the search for a team.
	maxTeamPages = 100
)

// Inferred is an inferred scope.
type Inferred struct {
	Scope
	// TeamSlug and ProjectName are readable names, if known.
	TeamSlug, ProjectName string
	// Created reports whether the project was created.
	Created bool
}

// InferScope determines the project of a login: the linked one, or else the
// default project, created if missing, of the given team, of the user's default
// team, or of a hobby team that the user owns. A link to another team than the
// given one is ignored.
func (h *Host) InferScope(ctx context.Context, token, teamID string) (Inferred, error) {
	link, err := h.Link()
	switch {
	case err == nil && link.TeamID != "" && (teamID == "" || teamID == link.TeamID || h.isTeam(ctx, token, teamID, link.TeamID)):
		return h.named(ctx, token, link), nil
	case err != nil && !errors.Is(err, ErrNothing):
		return Inferred{}, err
	case teamID != "":
		return h.tryTeam(ctx, token, teamID, "")
	}

	var user struct {
		User struct {
			DefaultTeamID string `json:"defaultTeamId"`
			Username      string `json:"username"`
		} `json:"user"`
	}
	if err := h.api(ctx, token, http.MethodGet, "/v2/user", nil, &user); err != nil {
		return Inferred{}, err
	}
	defaultTeam, username := user.User.DefaultTeamID, user.User.Username
	if defaultTeam != "" {
		scope, err := h.tryTeam(ctx, token, defaultTeam, "")
		if err == nil {
			scope.TeamSlug = h.name(ctx, token, "/v2/teams/"+url.PathEscape(defaultTeam))
		}
		if err == nil || !unusable(err) {
			return scope, err
		}
	}

	next := ""
	for range maxTeamPages {
		page, err := h.teams(ctx, token, next)
		if err != nil {
			return Inferred{}, err
		}
		if best, ok := page.best(username); ok && best.ID != defaultTeam {
			scope, err := h.tryTeam(ctx, token, best.ID, best.Slug)
			if err == nil || !unusable(err) {
				return scope, err
			}
		}
		if page.next == "" || page.next == next {
			break
		}
		next = page.next
	}
	if username != "" {
		scope, err := h.tryTeam(ctx, token, username, username)
		if err == nil || !unusable(err) {
			return scope, err
		}
	}
	return Inferred{}, &StatusError{
		http.StatusForbidden,
		fmt.Sprintf("Authenticated as %q but none of the available teams allow sandbox creation.", username),
	}
}

// tryTeam ensures that the team has the default project.
func (h *Host) tryTeam(ctx context.Context, token, teamID, slug string) (Inferred, error) {
	found := Inferred{
		Scope:    Scope{TeamID: teamID, ProjectID: DefaultProject},
		TeamSlug: slug, ProjectName: DefaultProject,
	}
	query := teamQuery(teamID)
	err := h.api(ctx, token, http.MethodGet, "/v2/projects/"+DefaultProject+query, nil, nil)
	if status(err) == http.StatusNotFound {
		found.Created = true
		err = h.api(ctx, token, http.MethodPost, "/v11/projects"+query, map[string]string{"name": DefaultProject}, nil)
	}
	if err != nil {
		return Inferred{}, err
	}
	return found, nil
}

// teamQuery returns the query that selects a team by its ID or slug.
func teamQuery(teamID string) string {
	key := "slug"
	if strings.HasPrefix(teamID, "team_") {
		key = "teamId"
	}
	return "?" + url.Values{key: {teamID}}.Encode()
}

// isTeam reports whether a slug is that of a team. One that can't be looked up is
// not.
func (h *Host) isTeam(ctx context.Context, token, slug, teamID string) bool {
	if strings.HasPrefix(slug, "team_") {
		return false
	}
	var resp team
	return h.api(ctx, token, http.MethodGet, "/v2/teams/"+url.PathEscape(slug), nil, &resp) == nil && resp.ID == teamID
}

// named returns the linked project with its readable names.
func (h *Host) named(ctx context.Context, token string, link Scope) Inferred {
	return Inferred{
		Scope:       link,
		TeamSlug:    h.name(ctx, token, "/v2/teams/"+url.PathEscape(link.TeamID)),
		ProjectName: h.name(ctx, token, "/v2/projects/"+url.PathEscape(link.ProjectID)+teamQuery(link.TeamID)),
	}
}

// name returns the readable name of the object at path, or "" if it is not
// available: it is only ever shown.
func (h *Host) name(ctx context.Context, token, path string) string {
	var resp struct {
		Slug string `json:"slug"`
		Name string `json:"name"`
	}
	if h.api(ctx, token, http.MethodGet, path, nil, &resp) != nil {
		return ""
	}
	return cmp.Or(resp.Slug, resp.Name)
}

type team struct {
	ID         string  `json:"id"`
	Slug       string  `json:"slug"`
	UpdatedAt  float64 `json:"updatedAt"`
	Membership struct {
		Role string `json:"role"`
	} `json:"membership"`
	Billing struct {
		Plan string `json:"plan"`
	} `json:"billing"`
}

type teamsPage struct {
	teams []team
	next  string
}

// best returns the best team on the page: the user's personal one, or else the
// hobby team that was changed last.
func (p teamsPage) best(username string) (team, bool) {
	owned := slices.DeleteFunc(slices.Clone(p.teams), func(t team) bool {
		return t.ID == "" || t.Membership.Role != "OWNER" || t.Billing.Plan != "hobby"
	})
	if len(owned) == 0 {
		return team{}, false
	}
	if i := slices.IndexFunc(owned, func(t team) bool { return t.Slug == username }); i >= 0 {
		return owned[i], true
	}
	return slices.MaxFunc(owned, func(a, b team) int { return cmp.Compare(a.UpdatedAt, b.UpdatedAt) }), true
}

func (h *Host) teams(ctx context.Context, token, until string) (teamsPage, error) {
	query := url.Values{"limit": {"20"}}
	if until != "" {
		query.Set("until", until)
	}
	var resp struct {
		Teams      []json.RawMessage `json:"teams"`
		Pagination struct {
			Next *float64 `json:"next"`
		} `json:"pagination"`
	}
	if err := h.api(ctx, token, http.MethodGet, "/v2/teams?"+query.Encode(), nil, &resp); err != nil {
		return teamsPage{}, err
	}
	var page teamsPage
	for _, raw := range resp.Teams {
		// One team that can't be decoded must not hide the others.
		var t team
		if json.Unmarshal(raw, &t) == nil {
			page.teams = append(page.teams, t)
		}
	}
	if resp.Pagination.Next != nil {
		page.next = strconv.FormatFloat(*resp.Pagination.Next, 'f', -1, 64)
	}
	return page, nil
}

// unusable reports whether an error means that the team can't be used, while
// another may.
func unusable(err error) bool {
	s := status(err)
	return s == http.StatusPaymentRequired || s == http.StatusForbidden
}

func status(err error) int {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Status
	}
	return 0
}

// api calls the Vercel API. The response is not decoded if resp is nil.
func (h *Host) api(ctx context.Context, token, method, path string, body, resp any) error {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, apiBase+path, reader)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	const doing = "finding a project for the CLI's login"
	data, err := h.do(req, doing)
	if err != nil {
		return err
	}
	if resp != nil && json.Unmarshal(data, resp) != nil {
		return &RemoteError{doing, errors.New("the response is invalid")}
	}
	return nil
}
