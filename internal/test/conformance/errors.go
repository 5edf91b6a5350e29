package conformance

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/users"
	"github.com/go-vercel/sandbox/internal/wire"
)

// textError is an error of a scenario's hook, or an error of the SDK with its JavaScript text.
type textError string

func (e textError) Error() string { return string(e) }

// wordings translates the messages about arguments that both SDKs refuse from this SDK's text
// to JavaScript's. {name} in a JavaScript text stands for an argument.
var wordings = []struct{ ours, js string }{
	{`stop: .*: there is no session$`, "No active session to stop."},
	{`signal: (Unknown signal name: .*)`, "$1"},
	{`src: is empty`, "downloadFile: source path is required"},
	{`dst: is empty`, "downloadFile: destination path is required"},
	{`Tags: has \d+ tags`, "Filtering by multiple tags is not supported. Pass a single `{ key: value }` tag."},
	{`username: is empty`, "Invalid username: must not be empty"},
	{`groupname: is empty`, "Invalid group name: must not be empty"},
	{`username: .* is longer than 32`, `Invalid username "{username}": must be at most 32 characters`},
	{`groupname: .* is longer than 32`, `Invalid group name "{groupname}": must be at most 32 characters`},
	{`username: .* must begin`, `Invalid username "{username}": must match /^[a-z_][a-z0-9_-]*$/ (lowercase letters, digits, hyphens, underscores)`},
	{`groupname: .* must begin`, `Invalid group name "{groupname}": must match /^[a-z_][a-z0-9_-]*$/ (lowercase letters, digits, hyphens, underscores)`},
	{`can't be combined with Runtime`, "`runtime` and `image` cannot be used together."},
	{`the working directory .* is not an absolute path`, "cwd dir must be absolute"},
}

// refusedText returns JavaScript's error for refused arguments, or nil if wordings has none.
func refusedText(err error, c *call) object {
	for _, w := range wordings {
		m := regexp.MustCompile(w.ours)
		at := m.FindStringSubmatchIndex(err.Error())
		if at == nil {
			continue
		}
		text := string(m.ExpandString(nil, w.js, err.Error(), at))
		for _, name := range []string{"username", "groupname"} {
			text = strings.ReplaceAll(text, "{"+name+"}", c.stringArgument(name))
		}
		out := object{"kind": "Error", "message": text}
		if strings.HasPrefix(text, "`runtime`") {
			out["name"] = "TypeError"
		}
		return out
	}
	return nil
}

// normError converts an error of this SDK to the form of results. It derives JavaScript's kind
// and text from the error's type and fields.
func normError(err error, c *call) object {
	if e, ok := errors.AsType[textError](err); ok {
		return object{"kind": "Error", "message": string(e)}
	}
	if errors.Is(err, context.Canceled) {
		return object{"kind": "Abort"}
	}
	for _, f := range []func(error, *call) object{
		credentialsError, userError, streamError, apiError, fileError, argumentError, networkError,
	} {
		if out := f(err, c); out != nil {
			return out
		}
	}
	return object{"kind": "Error", "message": normText(err.Error())}
}

// apiError describes an error response as the official SDK does.
func apiError(err error, _ *call) object {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		return nil
	}
	out := object{"kind": "APIError", "status": float64(e.Status)}
	if e.SessionID != "" {
		out["sessionId"] = e.SessionID
	} else if e.SandboxName != "" {
		out["sandboxName"] = encodeURIComponent(e.SandboxName)
	}
	body := e.Body
	if len(body) == 0 {
		body = []byte("{}")
	}
	decoded, isJSON := decodeJSON(body)
	response, _ := decoded.(object)
	said, _ := response["error"].(object)
	_, otherType := errors.AsType[*api.ContentTypeError](e.Err)
	_, cut := errors.AsType[*api.BodyError](e.Err)
	switch success := e.Status < 300; {
	case e.Operation == api.ReadFile.Name:
		// In JavaScript, these errors don't contain the session.
		delete(out, "sessionId")
		out["message"] = "Unexpected response reading file: status " + strconv.Itoa(e.Status) + ", content-type " + cmp.Or(e.ContentType, "(none)")
	case otherType && success:
		if out["message"] = "Expected a stream of logs"; e.Operation == api.RunCommand.Name {
			out["message"] = "Expected a stream of command data"
		}
		return out
	case cut:
		out["message"] = "Can't read response text: …"
		return out
	case !isJSON:
		out["message"] = "Can't parse JSON: …"
	case success && e.Status >= 200:
		out["message"] = "Response JSON is not valid: …"
	default:
		text := "Status code " + strconv.Itoa(e.Status) + " is not ok"
		if words, _ := said["message"].(string); words != "" {
			text += ": " + words
		}
		out["message"] = text
	}
	if !isJSON {
		out["text"] = normText(string(e.Body))
		return out
	}
	out["json"] = normDeep(decoded)
	if code, ok := said["code"]; ok {
		out["code"] = code
	}
	return out
}

// streamError describes the failure of an output stream. In JavaScript, the parser or the
// validation returns the error about an invalid line.
func streamError(err error, c *call) object {
	e, ok := errors.AsType[*sandbox.StreamError](err)
	if !ok {
		return nil
	}
	if line, ok := errors.AsType[*wire.LineError](e.Err); ok && line.NotJSON {
		return object{"kind": "ParseError"}
	} else if ok || e.Code == "invalid_record" {
		return object{"kind": "ValidationError"}
	}
	if e.Err != nil {
		c.out["#broken"] = true
	}
	return object{"kind": "StreamError", "message": e.Message, "code": e.Code, "sessionId": e.SessionID}
}

// userError describes a failed step of an operation on users and groups.
func userError(err error, c *call) object {
	if _, refused := errors.AsType[*sandbox.APIError](err); !refused && errors.Is(err, sandbox.ErrConflict) {
		name := c.stringArgument("username")
		return object{
			"kind": "SandboxUserAlreadyExistsError", "username": name,
			"message": "Failed to create user \"" + name + "\": user already exists",
		}
	}
	e, ok := errors.AsType[*users.StepError](err)
	if !ok {
		return nil
	}
	text := "Failed to " + e.Action
	switch {
	case e.ExitCode != 0:
		text += ": " + e.Stderr
	case e.Action == "resolve the default sandbox user":
		lines := append(strings.Split(strings.TrimSpace(e.Stdout), "\n"), "undefined")
		text += " (got \"" + lines[0] + ":" + lines[1] + "\")"
	}
	return object{"kind": "Error", "message": text}
}

// jsSyscalls maps file operations to their names in the official SDK's errors. An operation
// that is missing here has its name in lower case.
var jsSyscalls = map[string]string{"readFile": "open", "readdir": "scandir", "appendFile": "", "writeFile": "", "exists": ""}

// fileError describes the failure of a file operation. The official SDK searches a few phrases
// in the output of the helper program. If it finds none, its error is EACCES with this output.
// Errors of the local disk have an errno.
func fileError(err error, c *call) object {
	op, inSandbox := strings.CutPrefix(c.step.Op, "fs.")
	syscallName, special := jsSyscalls[op]
	if !special {
		syscallName = strings.ToLower(op)
	}
	e, ok := errors.AsType[*sandbox.FSError](err)
	if inSandbox = inSandbox && syscallName != ""; !ok || !inSandbox {
		return localError(err, syscallName, inSandbox)
	}
	path := cmp.Or(c.stringArgument("path"), c.stringArgument("from"), c.stringArgument("prefix"))
	said := strings.TrimSpace(e.Message)
	missing := strings.Contains(said, "No such file or directory") || errors.Is(err, syscall.ENOENT)
	code, text := "EACCES", said
	switch {
	case op == "symlink" && strings.Contains(said, "File exists"):
		code, text = "EEXIST", "file already exists"
	case op == "symlink", op == "mkdtemp":
	case op == "mkdir":
		text = cmp.Or(said, "permission denied")
	case missing:
		code, text = "ENOENT", "no such file or directory"
	case op == "rmdir" && strings.Contains(said, "not empty"):
		code, text = "ENOTEMPTY", "directory not empty"
	case op == "readlink":
		code, text = "EINVAL", "invalid argument"
	}
	return fsError(code, text, syscallName, path)
}

func fsError(code, text, op, path string) object {
	return object{"kind": "FsError", "message": code + ": " + text + ", " + op + " '" + path + "'", "code": code, "syscall": op, "path": path}
}

// errnoNames maps errnos of the local disk to the codes of Node.
var errnoNames = map[syscall.Errno]string{
	syscall.ENOENT: "ENOENT", syscall.EEXIST: "EEXIST", syscall.EACCES: "EACCES", syscall.EPERM: "EPERM",
	syscall.ENOTDIR: "ENOTDIR", syscall.EISDIR: "EISDIR", syscall.ENOTEMPTY: "ENOTEMPTY",
	syscall.EROFS: "EROFS", syscall.ENOSPC: "ENOSPC",
}

func errnoName(err error) string {
	errno, _ := errors.AsType[syscall.Errno](err)
	return errnoNames[errno]
}

func localError(err error, op string, inSandbox bool) object {
	pe, ok := errors.AsType[*fs.PathError](err)
	code := errnoName(err)
	switch {
	case !ok || code == "":
		return nil
	case inSandbox:
		return fsError(code, strings.ToLower(pe.Err.Error()), op, pe.Path)
	}
	return object{"kind": "LocalFsError", "code": code, "syscall": pe.Op, "path": pe.Path}
}

// argumentError describes the error about arguments that the SDK refuses without a request.
func argumentError(err error, c *call) object {
	switch {
	case errors.Is(err, errImpossible):
		return object{"kind": "ValidationError"}
	case errors.Is(err, sandbox.ErrNoRoute):
		_, port, _ := strings.Cut(err.Error(), "port ")
		port, _, _ = strings.Cut(port, ";") // the exposed ports follow the semicolon
		return object{"kind": "Error", "message": "No route for port " + port}
	case errors.Is(err, sandbox.ErrDeleted):
		return object{"kind": "Refused", "message": err.Error()}
	case !errors.Is(err, sandbox.ErrInvalid):
		return nil
	}
	if text := refusedText(err, c); text != nil {
		return text
	}
	c.out["#refused"] = true
	if strings.Contains(err.Error(), "NetworkPolicy") || c.step.Op == "updateNetworkPolicy" {
		return object{"kind": "ValidationError"}
	}
	return object{"kind": "Refused", "message": err.Error()}
}

// networkError describes the error of a connection that failed or broke.
func networkError(err error, _ *call) object {
	var (
		urlErr *url.Error
		netErr net.Error
		reqErr *sandbox.RequestError
	)
	if errors.As(err, &urlErr) || errors.As(err, &netErr) || errors.As(err, &reqErr) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return object{"kind": "NetworkError"}
	}
	return nil
}

// credentialsError describes the error about missing or invalid credentials.
func credentialsError(err error, _ *call) object {
	if e, ok := errors.AsType[*auth.MissingError](err); ok {
		missing := strings.NewReplacer("Token", "token", "TeamID", "teamId", "ProjectID", "projectId").Replace(strings.Join(e.Missing, ", "))
		return object{"kind": "Error", "message": "Missing credentials parameters to access the Vercel API: " + missing}
	}
	if e, ok := errors.AsType[*auth.OIDCError](err); ok {
		out := object{"kind": "LocalOidcContextError", "message": e.Advice()}
		if e.OnVercel {
			out["kind"] = "VercelOidcContextError"
		}
		if e.Err != nil {
			out["cause"] = e.Err.Error()
		}
		return out
	}
	if e, ok := errors.AsType[*oidc.StatusError](err); ok {
		return object{"kind": "NotOk", "message": e.Error()}
	}
	if e, ok := errors.AsType[*oidc.OAuthError](err); ok {
		return object{"kind": "Error", "message": e.Code + ": " + e.Description}
	}
	return nil
}
