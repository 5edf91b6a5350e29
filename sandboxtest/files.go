package sandboxtest

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

type pathParams struct {
	Path string `json:"path"`
	Cwd  string `json:"cwd"`
	// Recursive creates missing parents, too, and accepts an existing directory. Only the
	// Python client sends it.
	Recursive bool `json:"recursive"`
}

func (p *pathParams) check() error {
	if p.Path == "" {
		return reply.Invalid("missing required property `path`.")
	}
	if strings.ContainsRune(p.Path+p.Cwd, 0) {
		return reply.Invalid("`path` and `cwd` should NOT have NUL bytes.")
	}
	return nil
}

// beginFileCall reads the body of an operation on a file and finds the machine.
func (c *call) beginFileCall() (*store.Session, *box.Box, *pathParams, error) {
	p := new(pathParams)
	sess, err := c.sessionAndBody(p)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := p.check(); err != nil {
		return nil, nil, nil, err
	}
	machine, err := sess.Use(c.ctx)
	return sess, machine, p, err
}

// makeDir handles POST …/fs/mkdir.
func (c *call) makeDir() error {
	sess, machine, p, err := c.beginFileCall()
	if err != nil {
		return err
	}
	mkdir := machine.MkdirNew
	if p.Recursive {
		mkdir = machine.Mkdir
	}
	if err := mkdir(p.Path, p.Cwd); err != nil {
		return c.fileError(sess, "error creating directory", err)
	}
	return c.respond(http.StatusOK, struct{}{}, nil)
}

// readFile handles POST …/fs/read.
func (c *call) readFile() error {
	sess, machine, p, err := c.beginFileCall()
	if err != nil {
		return err
	}
	f, err := machine.ReadFile(p.Path, p.Cwd)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return reply.NotFound("File not found.")
		}
		return c.fileError(sess, "error reading file", err)
	}
	defer f.Close()
	c.w.Header().Set("Content-Type", "application/octet-stream")
	c.w.Header().Set("Content-Disposition", attachment(path.Base(p.Path)))
	c.w.WriteHeader(http.StatusOK)
	// Send chunks: the service does not send the length.
	if err := http.NewResponseController(c.w).Flush(); err != nil {
		return nil // the client has gone
	}
	// Copy to the end: files below /proc and /sys do not know their size.
	if _, err := io.Copy(c.w, f); err != nil {
		panic(http.ErrAbortHandler) // so that the client notices that the file is incomplete
	}
	return nil
}

// attachment returns the Content-Disposition of a file. Its first form of the name has
// question marks for characters that a quoted string can't contain. If there are any, a
// second form has the whole name, escaped.
func attachment(name string) string {
	var plain strings.Builder
	odd := false
	for _, r := range name {
		switch {
		case r == '"' || r == '\\':
			plain.WriteByte('\\')
		case r < ' ' || r > '~':
			odd, r = true, '?'
		}
		plain.WriteRune(r)
	}
	value := `attachment; filename="` + plain.String() + `"`
	if odd {
		value += "; filename*=UTF-8''" + url.PathEscape(name)
	}
	return value
}

// writeFiles handles POST …/fs/write.
func (c *call) writeFiles() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	cwd := c.r.Header.Get("X-Cwd")
	if cwd != "" && !path.IsAbs(cwd) {
		return reply.Invalid("`x-cwd` should be an absolute path.")
	}
	machine, err := sess.Use(c.ctx)
	if err != nil {
		return err
	}
	cwd = cmp.Or(cwd, machine.Account().WorkDir)
	if f, err := machine.ReadFile(cwd, ""); errors.Is(err, fs.ErrNotExist) {
		return reply.FileError("The archive could not be extracted: %s: No such file or directory", cwd)
	} else if err == nil {
		_ = f.Close() // only its existence matters
	}
	if err := machine.Extract(c.ctx, c.body(c.s.opts.MaxUpload), cwd); err != nil {
		if e, ok := errors.AsType[*reply.Error](err); ok {
			return e
		}
		return c.fileError(sess, "error writing files", err)
	}
	return c.respond(http.StatusOK, struct{}{}, nil)
}

// fileError returns the API's error for an error of the file system.
func (c *call) fileError(sess *store.Session, what string, err error) error {
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	if errors.Is(err, backend.ErrStopped) {
		return sess.MachineError(c.ctx, err)
	}
	// While a machine shuts down, operations may fail with any error.
	if _, gone := sess.Use(c.ctx); gone != nil {
		return gone
	}
	reason := strings.TrimPrefix(err.Error(), "box: ")
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		reason = capitalize(pe.Err.Error())
		if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(what, "error creating") {
			// The service does not name a missing parent, but it names all other files.
			reason = path.Join("/", filepath.ToSlash(pe.Path)) + ": " + reason
		}
	}
	if strings.Contains(strings.ToLower(reason), "is a directory") {
		return reply.Fail(http.StatusBadRequest, "is_directory", "%s: %s", what, reason)
	}
	return reply.FileError("%s: %s", what, reason)
}

// capitalize makes the first letter a capital, as in the messages of the C library.
func capitalize(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
