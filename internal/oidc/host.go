package oidc

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"runtime"
	"strings"
	"time"
	"unicode"

	"github.com/go-vercel/sandbox/internal/redact"
)

// ErrNothing matches errors that mean that no credentials were found: no linked
// project, no login. Other errors mean that credentials exist and do not work.
var ErrNothing = errors.New("nothing found")

// ErrRunOut matches errors that mean that the CLI's login can no longer be refreshed: the user has
// to log in again.
var ErrRunOut = errors.New("the login has expired")

var (
	// ErrNotLinked reports that neither the working directory nor a parent is
	// linked to a project.
	ErrNotLinked error = kind{ErrNothing, "no project is linked to this folder or a parent (run `vercel link`)"}
	// ErrNotLoggedIn reports that the CLI has no login.
	ErrNotLoggedIn error = kind{ErrNothing, "not logged in with the Vercel CLI (run `vercel login`)"}
)

// kind is an error with its own text that matches another.
type kind struct {
	of   error
	text string
}

func (k kind) Error() string { return k.text }
func (k kind) Unwrap() error { return k.of }

// requestTimeout limits one request for a token, so that a server that never
// responds does not hold a lock forever.
const requestTimeout = 30 * time.Second

// maxBody limits a response and a file. Real ones have a few kilobytes.
const maxBody = 1 << 20

// Host is where tokens are looked up: an environment, a directory, a network.
// It is safe for concurrent use; its fields must not be changed after first
// use.
type Host struct {
	// Getenv returns the value of a variable, "" if it is not set.
	Getenv func(key string) string
	// Dir is where the search for a linked project begins; "" means the working
	// directory.
	Dir string
	// GOOS is the system whose locations are used; by default this one.
	GOOS string

	client *http.Client
}

// NewHost returns a Host that makes its requests with client, or with a new
// client if that is nil.
func NewHost(client *http.Client, getenv func(string) string, dir string) *Host {
	c := &http.Client{}
	if client != nil {
		*c = *client
	}
	c.Timeout = cmp.Or(c.Timeout, requestTimeout)
	// No endpoint redirects. Following a redirect would send a login elsewhere.
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Host{Getenv: getenv, Dir: dir, GOOS: runtime.GOOS, client: c}
}

// join joins a path of the host's system.
func (h *Host) join(elem ...string) string {
	if h.GOOS == "windows" {
		return strings.Join(elem, `\`)
	}
	return path.Join(elem...)
}

func (h *Host) home() (string, error) {
	key := "HOME"
	if h.GOOS == "windows" {
		key = "USERPROFILE"
	}
	if home := h.Getenv(key); home != "" {
		return home, nil
	}
	return "", fmt.Errorf("no folder for the user's data: %s is not set", key)
}

// checkID refuses an ID that could name another file or another route. IDs come
// from files in directories that anyone may have sent.
func checkID(what, id string) error {
	bad := func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(`/\:*?"<>|`, r) }
	if id == "" || len(id) > 200 || strings.Trim(id, ". ") != id || strings.ContainsFunc(id, bad) {
		return fmt.Errorf("invalid %s %.60q", what, id)
	}
	return nil
}

// RemoteError reports that a server could not be reached or returned an error or an invalid
// response. A later retry may help.
type RemoteError struct {
	// Doing is what the request was for.
	Doing string
	// Err is a *StatusError, a network error, or a description of a bad response.
	Err error
}

func (e *RemoteError) Error() string { return e.Doing + ": " + e.Err.Error() }
func (e *RemoteError) Unwrap() error { return e.Err }

// StatusError is an unsuccessful response.
type StatusError struct {
	Status int
	// Text is the server's code and message, or the beginning of its response.
	Text string
}

func (e *StatusError) Error() string {
	text := cmp.Or(e.Text, http.StatusText(e.Status))
	return fmt.Sprintf("HTTP %d: %s", e.Status, text)
}

// Do sends a request and reads the response. An unsuccessful one is a
// *RemoteError.
func (h *Host) Do(req *http.Request, doing string) ([]byte, error) {
	known := redact.Knowing(strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
	res, body, err := h.Send(req)
	if err != nil {
		return nil, &RemoteError{doing, known.Error(err)}
	}
	if res.StatusCode/100 != 2 {
		return nil, &RemoteError{doing, &StatusError{res.StatusCode, known.Text(errorText(body))}}
	}
	return body, nil
}

// Send sends a request and reads the response, whatever its status.
func (h *Host) Send(req *http.Request) (*http.Response, []byte, error) {
	req.Header.Set("User-Agent", userAgent)
	res, err := h.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	return res, body, err
}

// userAgent identifies the SDK to the servers that issue tokens.
var userAgent = "go-vercel/sandbox (" + runtime.GOOS + "/" + runtime.GOARCH + ")"

// errorText returns the error in a response, truncated and on one line.
func errorText(body []byte) string {
	var resp struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &resp) == nil && resp.Error.Code != "" {
		return clip(strings.ToUpper(resp.Error.Code) + ": " + resp.Error.Message)
	}
	return clip(string(body))
}

// clip makes the text of a server safe to show.
func clip(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if runes := []rune(text); len(runes) > 300 {
		text = string(runes[:300]) + "…"
	}
	return redact.Printable(text)
}
