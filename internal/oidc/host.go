package oidc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
)

// ErrNothing is matched by errors which say that there was nothing to begin
// with: no linked project, nobody logged in. Others say that something is
// there and does not work.
var ErrNothing = errors.New("nothing found")

// ErrRunOut is matched by errors which say that the CLI's login can not be
// refreshed any more: somebody has to log in again.
var ErrRunOut = errors.New("the login has run out")

var (
	// ErrNotLinked says that no folder from the working directory up is linked
	// to a project.
	ErrNotLinked error = kind{ErrNothing, "no project is linked to this folder or a parent (run `vercel link`)"}
	// ErrNotLoggedIn says that the CLI has no login.
	ErrNotLoggedIn error = kind{ErrNothing, "nobody is logged in with the Vercel CLI (run `vercel login`)"}
)

// kind is an error with a text of its own that matches another.
type kind struct {
	of   error
	text string
}

func (k kind) Error() string { return k.text }
func (k kind) Unwrap() error { return k.of }

// requestTimeout bounds one request for a token, so that a server which never
// answers does not hold a lock for ever.
const requestTimeout = 30 * time.Second

// maxBody bounds an answer and a file. Real ones have a few kilobytes.
const maxBody = 1 << 20

// Host is what tokens are looked up on: an environment, a folder, a network.
// It is safe for concurrent use; its fields are not to be changed then.
type Host struct {
	// Getenv reads a variable, "" when it is not set.
	Getenv func(key string) string
	// Dir is where the search for a linked project begins; "" is the working
	// directory.
	Dir string
	// GOOS is the system whose locations are used; "" is this one.
	GOOS string

	client *http.Client
}

// NewHost returns a Host that makes its requests with client, or with one of
// its own when that is nil.
func NewHost(client *http.Client, getenv func(string) string, dir string) *Host {
	c := &http.Client{}
	if client != nil {
		*c = *client
	}
	if c.Timeout == 0 {
		c.Timeout = requestTimeout
	}
	// No endpoint redirects. A redirect followed would carry a login elsewhere.
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Host{Getenv: getenv, Dir: dir, client: c}
}

func (h *Host) goos() string {
	if h.GOOS == "" {
		return runtime.GOOS
	}
	return h.GOOS
}

// join joins a path of the host's system.
func (h *Host) join(elem ...string) string {
	if h.goos() == "windows" {
		return strings.Join(elem, `\`)
	}
	return path.Join(elem...)
}

func (h *Host) home() (string, error) {
	key := "HOME"
	if h.goos() == "windows" {
		key = "USERPROFILE"
	}
	if home := h.Getenv(key); home != "" {
		return home, nil
	}
	return "", fmt.Errorf("no folder for the user's data: %s is not set", key)
}

// DataDir is the folder in which the Vercel tools keep theirs.
func (h *Host) DataDir() (string, error) {
	if dir := h.Getenv("XDG_DATA_HOME"); dir != "" {
		return dir, nil
	}
	if h.goos() == "windows" {
		if dir := h.Getenv("LOCALAPPDATA"); dir != "" {
			return dir, nil
		}
	}
	home, err := h.home()
	if err != nil {
		return "", err
	}
	switch h.goos() {
	case "darwin":
		return h.join(home, "Library", "Application Support"), nil
	case "windows":
		return h.join(home, "AppData", "Local"), nil
	default:
		return h.join(home, ".local", "share"), nil
	}
}

// LoginFile is the file in which the CLI keeps its login.
func (h *Host) LoginFile() (string, error) {
	if dir := h.Getenv("VERCEL_AUTH_CONFIG_DIR"); dir != "" {
		return h.join(dir, "auth.json"), nil
	}
	data, err := h.DataDir()
	if err != nil {
		return "", err
	}
	file := h.join(data, "com.vercel.cli", "auth.json")
	// On Windows the CLI and the package that refreshes tokens disagree about
	// the folder: whoever has a login is right.
	if roaming := h.Getenv("APPDATA"); h.goos() == "windows" && roaming != "" && !exists(file) {
		if other := h.join(roaming, "xdg.data", "com.vercel.cli", "auth.json"); exists(other) {
			return other, nil
		}
	}
	return file, nil
}

// TokenFile is the file in which the tools keep the OIDC token of a project.
func (h *Host) TokenFile(projectID string) (string, error) {
	if err := checkID("project ID", projectID); err != nil {
		return "", err
	}
	data, err := h.DataDir()
	if err != nil {
		return "", err
	}
	return h.join(data, "com.vercel.token", projectID+".json"), nil
}

// checkID refuses an ID that could name another file or another route. IDs come
// from files in folders that anybody may have sent.
func checkID(what, id string) error {
	bad := func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`/\:*?"<>|`, r) }
	if id == "" || len(id) > 200 || strings.Trim(id, ". ") != id || strings.ContainsFunc(id, bad) {
		return fmt.Errorf("invalid %s %.60q", what, id)
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// RemoteError says that a server could not be asked or did not give what it
// should have: asking again later may help, asking at once will not.
type RemoteError struct {
	// Doing is what it was asked for.
	Doing string
	// Err is a *StatusError, an error of the network, or what is wrong with the
	// answer.
	Err error
}

func (e *RemoteError) Error() string { return e.Doing + ": " + e.Err.Error() }
func (e *RemoteError) Unwrap() error { return e.Err }

// StatusError is an answer that is not a success.
type StatusError struct {
	Status int
	// Text is the server's code and message, or the beginning of its answer.
	Text string
}

func (e *StatusError) Error() string {
	text := e.Text
	if text == "" {
		text = http.StatusText(e.Status)
	}
	return fmt.Sprintf("HTTP %d: %s", e.Status, text)
}

// do sends a request and reads its answer, which is a *RemoteError when it is
// not a success.
func (h *Host) do(req *http.Request, doing string) ([]byte, error) {
	req.Header.Set("User-Agent", userAgent)
	known := redact.Knowing(strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
	res, err := h.client.Do(req)
	if err != nil {
		return nil, &RemoteError{doing, known.Error(err)}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return nil, &RemoteError{doing, err}
	}
	if res.StatusCode/100 != 2 {
		return nil, &RemoteError{doing, &StatusError{res.StatusCode, known.Text(errorText(body))}}
	}
	return body, nil
}

// userAgent names the SDK to the servers that give out tokens.
var userAgent = "go-vercel/sandbox (" + runtime.GOOS + "/" + runtime.GOARCH + ")"

// errorText is what an answer says went wrong, bounded and on one line.
func errorText(body []byte) string {
	var answer struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.Error.Code != "" {
		return clip(strings.ToUpper(answer.Error.Code) + ": " + answer.Error.Message)
	}
	return clip(string(body))
}

// clip makes a text of a server fit to be shown.
func clip(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if runes := []rune(text); len(runes) > 300 {
		text = string(runes[:300]) + "…"
	}
	return redact.Printable(text)
}
