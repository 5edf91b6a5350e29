package sandboxtest

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

type pathParams struct {
	Path string `json:"path"`
	Cwd  string `json:"cwd"`
	// Recursive is what the Python client sends.
	Recursive bool `json:"recursive"`
}

func (p *pathParams) check() error {
	if p.Path == "" {
		return invalid("should have required property `path`")
	}
	if strings.ContainsRune(p.Path+p.Cwd, 0) {
		return invalid("`path` and `cwd` should NOT have NUL bytes")
	}
	return nil
}

// fileCall reads the body of an operation on a file and finds the machine.
func (c *call) fileCall() (*session, *box.Box, *pathParams, error) {
	sess, err := c.session()
	if err != nil {
		return nil, nil, nil, err
	}
	p := new(pathParams)
	if _, err := c.decode(p); err != nil {
		return nil, nil, nil, err
	}
	if err := p.check(); err != nil {
		return nil, nil, nil, err
	}
	machine, err := sess.use(c.ctx)
	return sess, machine, p, err
}

// makeDir answers POST …/fs/mkdir.
func (c *call) makeDir() error {
	sess, machine, p, err := c.fileCall()
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
	writeJSON(c.w, http.StatusOK, struct{}{})
	return nil
}

// readFile answers POST …/fs/read.
func (c *call) readFile() error {
	sess, machine, p, err := c.fileCall()
	if err != nil {
		return err
	}
	f, size, err := machine.ReadFile(p.Path, p.Cwd)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return notFound("File not found.")
		}
		return c.fileError(sess, "error reading file", err)
	}
	defer f.Close()
	c.w.Header().Set("Content-Type", "application/octet-stream")
	c.w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	c.w.WriteHeader(http.StatusOK)
	n, err := io.Copy(c.w, io.LimitReader(f, size))
	if err == nil && n < size {
		// It was cut short meanwhile; the length was promised.
		panic(http.ErrAbortHandler)
	}
	return nil // else the client has gone
}

// writeFiles answers POST …/fs/write.
func (c *call) writeFiles() error {
	sess, err := c.session()
	if err != nil {
		return err
	}
	cwd := c.r.Header.Get("X-Cwd")
	switch {
	case cwd == "":
		cwd = workDir
	case !path.IsAbs(cwd):
		return invalid("`x-cwd` should be an absolute path")
	}
	machine, err := sess.use(c.ctx)
	if err != nil {
		return err
	}
	if err := machine.Extract(c.ctx, c.body(c.s.opts.MaxUpload), cwd); err != nil {
		if e, ok := errors.AsType[*apiError](err); ok {
			return e
		}
		return c.fileError(sess, "error writing files", err)
	}
	writeJSON(c.w, http.StatusOK, struct{}{})
	return nil
}

// fileError makes the answer to what the file system has refused.
func (c *call) fileError(sess *session, what string, err error) error {
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	if errors.Is(err, box.ErrStopped) {
		return sess.machineError(c.ctx, err)
	}
	reason := strings.TrimPrefix(err.Error(), "box: ")
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		reason = pe.Path + ": " + pe.Err.Error()
	}
	if strings.Contains(reason, "is a directory") {
		return fail(http.StatusBadRequest, "is_directory", "%s: %s", what, reason)
	}
	return fileError("%s: %s", what, reason)
}
