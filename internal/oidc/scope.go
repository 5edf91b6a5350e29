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
	// defaultProject is the project to use if none is given or linked.
	defaultProject = "vercel-sandbox-default-project"
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

// ErrNoProject matches the error of a search with NoCreate if there is no default project.
var ErrNoProject = errors.New("there is no default project yet")

// Search configures the search for the project of a token.
type Search struct {
	// Token is an access token, or a login.
	Token string
	// Given is the known part of the scope, which the search does not change.
	Given Scope
	// NoCreate lets the search fail with ErrNoProject rather than create the
	// default project.
	NoCreate bool
	// Names asks for the readable names of a linked project.
	Names bool
	// Base returns the address of the API that the token is for. Nil means Vercel's. It is
	// called only if a request is needed.
	Base func() (string, error)
	// Doing is the purpose of the requests, for errors.
	Doing string
}

// Linked completes a scope with the project that the directory is linked to. The error matches
// ErrNothing if there is no link, or only one to another team than the given one.
func (h *Host) Linked(given Scope) (Scope, error) {
	if given.TeamID != "" && given.ProjectID != "" {
		return given, nil
	}
	link, err := h.Link()
	switch {
	case err != nil:
		return Scope{}, err
	case link.TeamID == "":
		return Scope{}, kind{ErrNothing, "the project linked to this folder or a parent has no team (run `vercel link` again)"}
	case given.TeamID != "" && given.TeamID != link.TeamID:
		return Scope{}, otherTeam(link.TeamID)
	}
	return Scope{TeamID: link.TeamID, ProjectID: cmp.Or(given.ProjectID, link.ProjectID)}, nil
}

// otherTeam is the error for a link to another team than the given one. Its value is the team's ID.
type otherTeam string

func (id otherTeam) Error() string {
	return fmt.Sprintf("the project linked to this folder or a parent is one of team %s", string(id))
}

func (id otherTeam) Unwrap() error { return ErrNothing }

// InferScope completes a scope with the linked project, or otherwise with the default project of the
// given team, the user's default team, or a hobby team that the user owns. It creates the default
// project if it does not exist. It ignores a link to another team than the given one.
func (h *Host) InferScope(ctx context.Context, s Search) (Inferred, error) {
	if s.Given.TeamID != "" && s.Given.ProjectID != "" {
		return Inferred{Scope: s.Given}, nil
	}
	search := search{h, s}
	scope, err := h.Linked(s.Given)
	if other, ok := errors.AsType[otherTeam](err); ok && search.isTeam(ctx, s.Given.TeamID, string(other)) {
		scope, err = h.Linked(Scope{ProjectID: s.Given.ProjectID})
		scope.TeamID = s.Given.TeamID
	}
	switch {
	case err == nil:
		return search.named(ctx, scope), nil
	case !errors.Is(err, ErrNothing):
		return Inferred{}, err
	}
	found, err := search.team(ctx)
	found.ProjectID = cmp.Or(s.Given.ProjectID, found.ProjectID)
	return found, err
}

// search is one search on a host.
type search struct {
	*Host
	Search
}

// team finds the team, unless it is given, and its default project.
func (h search) team(ctx context.Context) (Inferred, error) {
	if h.Given.TeamID != "" {
		return h.tryTeam(ctx, h.Given.TeamID, "")
	}
	var user struct {
		User struct {
			DefaultTeamID string `json:"defaultTeamId"`
			Username      string `json:"username"`
		} `json:"user"`
	}
	if err := h.api(ctx, http.MethodGet, "/v2/user", nil, &user); err != nil {
		return Inferred{}, err
	}
	defaultTeam, username := user.User.DefaultTeamID, user.User.Username
	if defaultTeam != "" {
		scope, err := h.tryTeam(ctx, defaultTeam, "")
		if err == nil {
			scope.TeamSlug = h.name(ctx, "/v2/teams/"+url.PathEscape(defaultTeam))
		}
		if err == nil || !unusable(err) {
			return scope, err
		}
	}

	next := ""
	for range maxTeamPages {
		page, err := h.teams(ctx, next)
		if err != nil {
			return Inferred{}, err
		}
		if best, ok := page.best(username); ok && best.ID != defaultTeam {
			scope, err := h.tryTeam(ctx, best.ID, best.Slug)
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
		scope, err := h.tryTeam(ctx, username, username)
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
func (h search) tryTeam(ctx context.Context, teamID, slug string) (Inferred, error) {
	found := Inferred{
		Scope:    Scope{TeamID: teamID, ProjectID: defaultProject},
		TeamSlug: slug, ProjectName: defaultProject,
	}
	query := teamQuery(teamID)
	err := h.api(ctx, http.MethodGet, "/v2/projects/"+defaultProject+query, nil, nil)
	switch {
	case status(err) != http.StatusNotFound:
	case h.Given.ProjectID != "":
		err = nil // the project is given, so the default one is not needed
	case h.NoCreate:
		err = fmt.Errorf("%w: team %s has no %s, and nothing is to be created", ErrNoProject, teamID, defaultProject)
	default:
		found.Created = true
		err = h.api(ctx, http.MethodPost, "/v11/projects"+query, map[string]string{"name": defaultProject}, nil)
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

// isTeam reports whether a slug belongs to a team. It returns false if the lookup fails.
func (h search) isTeam(ctx context.Context, slug, teamID string) bool {
	if strings.HasPrefix(slug, "team_") {
		return false
	}
	var resp team
	return h.api(ctx, http.MethodGet, "/v2/teams/"+url.PathEscape(slug), nil, &resp) == nil && resp.ID == teamID
}

// named returns the linked project, with its readable names if the search requests them.
func (h search) named(ctx context.Context, link Scope) Inferred {
	found := Inferred{Scope: link}
	if h.Names {
		found.TeamSlug = h.name(ctx, "/v2/teams/"+url.PathEscape(link.TeamID))
		found.ProjectName = h.name(ctx, "/v2/projects/"+url.PathEscape(link.ProjectID)+teamQuery(link.TeamID))
	}
	return found
}

// name returns the readable name of the object at path, or "" after an error, because it is only
// shown.
func (h search) name(ctx context.Context, path string) string {
	var resp struct {
		Slug string `json:"slug"`
		Name string `json:"name"`
	}
	if h.api(ctx, http.MethodGet, path, nil, &resp) != nil {
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

func (h search) teams(ctx context.Context, until string) (teamsPage, error) {
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
	if err := h.api(ctx, http.MethodGet, "/v2/teams?"+query.Encode(), nil, &resp); err != nil {
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
func (h search) api(ctx context.Context, method, path string, body, resp any) error {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(data)
	}
	base, err := DefaultBaseURL, error(nil)
	if h.Base != nil {
		base, err = h.Base()
	}
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, reader)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+h.Token)
	req.Header.Set("Content-Type", "application/json")
	data, err := h.Do(req, h.Doing)
	if err != nil {
		return err
	}
	if resp != nil && json.Unmarshal(data, resp) != nil {
		return &RemoteError{h.Doing, errors.New("the response is invalid")}
	}
	return nil
}
