package conformance

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/wire"
)

// textError replaces the text of an SDK error by that of the same error in
// JavaScript.
type textError struct {
	text string
	err  error
}

func (e *textError) Error() string { return e.text }
func (e *textError) Unwrap() error { return e.err }

// thrown is the error of a scenario's hook.
type thrown struct{ text string }

func (e *thrown) Error() string { return e.text }

// normError converts an error of the SDK to the form of results: the kinds and
// texts of the JavaScript SDK, derived from the error's type and fields.
func normError(err error, c *call) map[string]any {
	if errors.Is(err, errHang) {
		return map[string]any{"kind": "Hang"}
	}
	if e, ok := errors.AsType[*thrown](err); ok {
		return map[string]any{"kind": "Error", "message": e.text}
	}
	if e, ok := errors.AsType[*textError](err); ok {
		return map[string]any{"kind": "Error", "message": e.text}
	}
	if errors.Is(err, context.Canceled) {
		return map[string]any{"kind": "Abort"}
	}
	for _, f := range []func(error, *call) map[string]any{
		credentialsError, userError, streamError, apiError, fileError, localError, argumentError, networkError,
	} {
		if out := f(err, c); out != nil {
			return out
		}
	}
	return map[string]any{"kind": "Error", "message": normText(err.Error())}
}

// apiError describes an error response as the official SDK does.
func apiError(err error, c *call) map[string]any {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		return nil
	}
	out := map[string]any{"kind": "APIError", "status": float64(e.Status)}
	if e.SessionID != "" {
		out["sessionId"] = e.SessionID
	} else if e.SandboxName != "" {
		out["sandboxName"] = encodeURIComponent(e.SandboxName)
	}
	var (
		body        = e.Body
		contentType *api.ContentTypeError
		cut         *api.BodyError
	)
	if len(body) == 0 {
		body = []byte("{}")
	}
	decoded, isJSON := decodeJSON(body)
	switch {
	case e.Operation == api.ReadFile.Name:
		// In JavaScript these errors do not name the session.
		delete(out, "sessionId")
		out["message"] = "Unexpected response reading file: status " + strconv.Itoa(e.Status) + ", content-type " + cmp.Or(e.ContentType, "(none)")
	case errors.As(e.Err, &contentType) && e.Status < 300:
		out["message"] = "Expected a stream of logs"
		if e.Operation == api.RunCommand.Name {
			out["message"] = "Expected a stream of command data"
		}
		return out
	case errors.As(e.Err, &cut):
		out["message"] = "Can't read response text: …"
		return out
	case !isJSON:
		out["message"] = "Can't parse JSON: …"
	case e.Status >= 200 && e.Status < 300:
		out["message"] = "Response JSON is not valid: …"
	default:
		out["message"] = "Status code " + strconv.Itoa(e.Status) + " is not ok"
		if words := serverWords(decoded); words != "" {
			out["message"] = out["message"].(string) + ": " + words
		}
	}
	if !isJSON {
		out["text"] = normText(string(e.Body))
		return out
	}
	out["json"] = normDeep(decoded)
	if m, ok := decoded.(map[string]any); ok {
		if inner, ok := m["error"].(map[string]any); ok {
			if code, ok := inner["code"]; ok {
				out["code"] = code
			}
		}
	}
	return out
}

// serverWords returns the message in the body of an error response.
func serverWords(body any) string {
	m, _ := body.(map[string]any)
	inner, _ := m["error"].(map[string]any)
	words, _ := inner["message"].(string)
	return words
}

// streamError describes a failure of an output stream. In JavaScript, an
// invalid line is an error of the parser or of the validation.
func streamError(err error, c *call) map[string]any {
	e, ok := errors.AsType[*sandbox.StreamError](err)
	if !ok {
		return nil
	}
	if line, ok := errors.AsType[*wire.LineError](e.Err); ok {
		if line.NotJSON {
			return map[string]any{"kind": "ParseError"}
		}
		return map[string]any{"kind": "ValidationError"}
	}
	if e.Code == "invalid_record" {
		return map[string]any{"kind": "ValidationError"}
	}
	out := map[string]any{"kind": "StreamError", "message": e.Message, "code": e.Code, "sessionId": e.SessionID}
	if e.Err != nil {
		c.out["#broken"] = true
	}
	return out
}

// userError describes a failed step of an operation on users and groups.
func userError(err error, c *call) map[string]any {
	if errors.Is(err, sandbox.ErrUserExists) {
		var a struct {
			Username string `json:"username"`
		}
		_ = c.args(&a)
		return map[string]any{
			"kind": "SandboxUserAlreadyExistsError", "username": a.Username,
			"message": "Failed to create user \"" + a.Username + "\": user already exists",
		}
	}
	e, ok := errors.AsType[*sandbox.UserError](err)
	if !ok {
		return nil
	}
	text := "Failed to " + e.Action
	switch {
	case e.ExitCode != 0:
		text += ": " + e.Stderr
	case e.Action == "resolve the default sandbox user":
		user, group, found := strings.Cut(strings.TrimSpace(e.Stdout), "\n")
		if !found {
			group = "undefined"
		}
		group, _, _ = strings.Cut(group, "\n")
		text += " (got \"" + user + ":" + group + "\")"
	}
	return map[string]any{"kind": "Error", "message": text}
}

// jsSyscalls are the names of fs operations in the official SDK's errors.
var jsSyscalls = map[string]string{
	"fs.readFile": "open", "fs.mkdir": "mkdir", "fs.readdir": "scandir", "fs.stat": "stat", "fs.lstat": "lstat",
	"fs.unlink": "unlink", "fs.rm": "rm", "fs.rmdir": "rmdir", "fs.rename": "rename", "fs.copyFile": "copyfile",
	"fs.access": "access", "fs.chmod": "chmod", "fs.chown": "chown", "fs.symlink": "symlink",
	"fs.readlink": "readlink", "fs.realpath": "realpath", "fs.truncate": "truncate", "fs.mkdtemp": "mkdtemp",
}

// fileError describes the failure of a file operation. The official SDK looks
// for a few phrases in the program's output; anything else is EACCES with that
// output.
func fileError(err error, c *call) map[string]any {
	e, ok := errors.AsType[*sandbox.FSError](err)
	op := jsSyscalls[c.step.Op]
	if !ok || op == "" {
		return nil
	}
	var a fsArgs
	_ = c.args(&a)
	path := a.Path
	switch c.step.Op {
	case "fs.rename", "fs.copyFile":
		path = a.From
	case "fs.mkdtemp":
		path = a.Prefix
	}
	said := strings.TrimSpace(e.Message)
	missing := strings.Contains(said, "No such file or directory")
	if e.Command == "" && e.Errno == syscall.ENOENT {
		missing = true // the API said so
	}
	code, text := "EACCES", said
	switch {
	case c.step.Op == "fs.symlink" && strings.Contains(said, "File exists"):
		code, text = "EEXIST", "file already exists"
	case c.step.Op == "fs.symlink", c.step.Op == "fs.mkdtemp":
	case c.step.Op == "fs.mkdir":
		text = cmp.Or(said, "permission denied")
	case missing:
		code, text = "ENOENT", "no such file or directory"
	case c.step.Op == "fs.rmdir" && strings.Contains(said, "not empty"):
		code, text = "ENOTEMPTY", "directory not empty"
	case c.step.Op == "fs.readlink":
		code, text = "EINVAL", "invalid argument"
	}
	return map[string]any{
		"kind": "FsError", "message": code + ": " + text + ", " + op + " '" + path + "'",
		"code": code, "syscall": op, "path": path,
	}
}

// errnoNames are the Node codes of errors of the local disk.
var errnoNames = []struct {
	errno syscall.Errno
	name  string
}{
	{syscall.ENOENT, "ENOENT"}, {syscall.EEXIST, "EEXIST"}, {syscall.EACCES, "EACCES"}, {syscall.EPERM, "EPERM"},
	{syscall.ENOTDIR, "ENOTDIR"}, {syscall.EISDIR, "EISDIR"}, {syscall.ENOTEMPTY, "ENOTEMPTY"},
	{syscall.EROFS, "EROFS"}, {syscall.ENOSPC, "ENOSPC"},
}

func errnoName(err error) string {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return ""
	}
	for _, e := range errnoNames {
		if e.errno == errno {
			return e.name
		}
	}
	return ""
}

// localError describes an error of the local disk, and that of Access for a
// file missing in the sandbox, which has an errno and nothing else.
func localError(err error, c *call) map[string]any {
	pe, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		if le, isLink := errors.AsType[*os.LinkError](err); isLink {
			pe, ok = &fs.PathError{Op: le.Op, Path: le.Old, Err: le.Err}, true
		}
	}
	code := errnoName(err)
	if !ok || code == "" {
		return nil
	}
	if op := jsSyscalls[c.step.Op]; op != "" {
		text := strings.ToLower(pe.Err.Error())
		return map[string]any{
			"kind": "FsError", "message": code + ": " + text + ", " + op + " '" + pe.Path + "'",
			"code": code, "syscall": op, "path": pe.Path,
		}
	}
	return map[string]any{"kind": "LocalFsError", "code": code, "syscall": pe.Op, "path": pe.Path}
}

// argumentError describes what is refused before any request.
func argumentError(err error, c *call) map[string]any {
	if errors.Is(err, errInvalidPolicy) {
		return map[string]any{"kind": "ValidationError"}
	}
	if errors.Is(err, sandbox.ErrNoRoute) {
		_, port, _ := strings.Cut(err.Error(), "port ")
		port, _, _ = strings.Cut(port, ";") // what is exposed instead
		return map[string]any{"kind": "Error", "message": "No route for port " + port}
	}
	if errors.Is(err, sandbox.ErrDeleted) {
		c.out["#refused"] = ruleDeleted
		return map[string]any{"kind": "Refused", "message": err.Error()}
	}
	if !errors.Is(err, sandbox.ErrInvalid) {
		return nil
	}
	switch c.step.Op {
	case "updateNetworkPolicy", "update", "create", "fork", "getOrCreate":
		if strings.Contains(err.Error(), "NetworkPolicy") || c.step.Op == "updateNetworkPolicy" {
			c.out["#refused"] = ruleRefused
			if strings.Contains(err.Error(), sandbox.RedactedHeader) {
				c.out["#refused"] = ruleRedacted
			}
			return map[string]any{"kind": "ValidationError"}
		}
		if strings.Contains(err.Error(), "can't be combined with Runtime") {
			return map[string]any{"kind": "Error", "message": "`runtime` and `image` cannot be used together.", "name": "TypeError"}
		}
	case "writeFiles", "fs.writeFile":
		if strings.Contains(err.Error(), "working directory") {
			return map[string]any{"kind": "Error", "message": "cwd dir must be absolute"}
		}
	}
	c.out["#refused"] = ruleRefused
	return map[string]any{"kind": "Refused", "message": err.Error()}
}

// networkError describes a connection that failed or broke.
func networkError(err error, _ *call) map[string]any {
	var (
		urlErr *url.Error
		netErr net.Error
		reqErr *sandbox.RequestError
	)
	if errors.As(err, &urlErr) || errors.As(err, &netErr) || errors.As(err, &reqErr) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return map[string]any{"kind": "NetworkError"}
	}
	return nil
}

// credentialsError describes missing or invalid credentials.
func credentialsError(err error, _ *call) map[string]any {
	if e, ok := errors.AsType[*auth.MissingError](err); ok {
		names := map[string]string{"Token": "token", "TeamID": "teamId", "ProjectID": "projectId"}
		var missing []string
		for _, m := range e.Missing {
			missing = append(missing, cmp.Or(names[m], m))
		}
		return map[string]any{
			"kind": "Error", "message": "Missing credentials parameters to access the Vercel API: " + strings.Join(missing, ", "),
		}
	}
	if e, ok := errors.AsType[*auth.OIDCError](err); ok {
		kind := "LocalOidcContextError"
		if e.OnVercel {
			kind = "VercelOidcContextError"
		}
		out := map[string]any{"kind": kind, "message": e.Advice()}
		if e.Err != nil {
			out["cause"] = e.Err.Error()
		}
		return out
	}
	if e, ok := errors.AsType[*oidc.StatusError](err); ok {
		return map[string]any{"kind": "NotOk", "message": e.Error()}
	}
	if e, ok := errors.AsType[*oidc.OAuthError](err); ok {
		return map[string]any{"kind": "Error", "message": e.Code + ": " + e.Description}
	}
	return nil
}
