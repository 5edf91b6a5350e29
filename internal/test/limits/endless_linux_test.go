package limits_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/terminal"
)

// endlessEnv names the variable with the job for the process that runs TestEndlessClient.
const endlessEnv = "SANDBOX_TEST_ENDLESS"

// endlessMB is the maximum memory of a process in MB while one of the client's helper
// programs writes without end.
const endlessMB = 64.0

// hostile is a sandbox whose helper programs write without end: they are in the first
// directory of PATH.
type hostile struct {
	sb    *sandbox.Sandbox
	fs    *sandbox.FileSystem
	user  *sandbox.User
	local string
}

// endlessServer starts a server whose responses do not end. For kind "errors" it is the
// header that does not end, otherwise the body.
func endlessServer(t *testing.T, kind string) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				more := bytes.Repeat([]byte("X-Endless: yes\r\n"), 1000)
				_, err := io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\n")
				if kind != "errors" {
					_, err = io.WriteString(conn, "\r\n")
				}
				for err == nil {
					_, err = conn.Write(more)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// terminalProxy starts a proxy in front of the emulator that returns another address for terminals.
func terminalProxy(t *testing.T, api, terminals string) string {
	target, err := url.Parse(api)
	require.NoError(t, err)
	next := &http.Transport{}
	srv := httptest.NewServer(&httputil.ReverseProxy{
		Transport: next, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			if strings.HasSuffix(r.Request.URL.Path, "/interactive") {
				body := fmt.Sprintf(`{"url":"ws://%s","token":"t"}`, terminals)
				r.Header.Set("Content-Length", fmt.Sprint(len(body)))
				r.Body = io.NopCloser(strings.NewReader(body))
			}
			return nil
		},
	})
	t.Cleanup(func() {
		srv.Close()
		next.CloseIdleConnections()
	})
	return srv.URL
}

// endlessCalls has a call for each method that runs helper programs. Nil means that a
// method runs no helper program. A new method of FileSystem or User needs a row.
var endlessCalls = map[string]func(ctx context.Context, h *hostile) error{
	"FileSystem.AppendFile":    func(ctx context.Context, h *hostile) error { return h.fs.AppendFile(ctx, "f", []byte("x")) },
	"FileSystem.Chmod":         func(ctx context.Context, h *hostile) error { return h.fs.Chmod(ctx, "f", 0o600) },
	"FileSystem.ChmodSymbolic": func(ctx context.Context, h *hostile) error { return h.fs.ChmodSymbolic(ctx, "f", "u+x") },
	"FileSystem.Chown":         func(ctx context.Context, h *hostile) error { return h.fs.Chown(ctx, "f", 1, 1) },
	"FileSystem.CopyFile":      func(ctx context.Context, h *hostile) error { return h.fs.CopyFile(ctx, "f", "g") },
	"FileSystem.Create": func(ctx context.Context, h *hostile) error {
		w, err := h.fs.Create(ctx, "f", nil)
		if err != nil {
			return err
		}
		_, err = w.Write([]byte("x"))
		if closeErr := w.Close(); err == nil {
			err = closeErr
		}
		return err
	},
	"FileSystem.Exists": func(ctx context.Context, h *hostile) error { _, err := h.fs.Exists(ctx, "f"); return err },
	"FileSystem.IOFS": func(ctx context.Context, h *hostile) error { // reads the listing of a walk
		_, err := fs.ReadDir(h.fs.IOFS(ctx, "/"), ".")
		return err
	},
	"FileSystem.WalkDir": func(ctx context.Context, h *hostile) error {
		return h.fs.WalkDir(ctx, "/", func(_ string, _ fs.DirEntry, err error) error { return err })
	},
	"FileSystem.Lstat":     func(ctx context.Context, h *hostile) error { _, err := h.fs.Lstat(ctx, "f"); return err },
	"FileSystem.Mkdir":     func(ctx context.Context, h *hostile) error { return h.fs.Mkdir(ctx, "d", 0o700) },
	"FileSystem.MkdirAll":  func(ctx context.Context, h *hostile) error { return h.fs.MkdirAll(ctx, "d/e", 0o755) },
	"FileSystem.MkdirTemp": func(ctx context.Context, h *hostile) error { _, err := h.fs.MkdirTemp(ctx, "", "d*"); return err },
	// A program reads the file, because its path is not UTF-8.
	"FileSystem.Open": func(ctx context.Context, h *hostile) error {
		f, err := h.fs.Open(ctx, "\xff", nil)
		if err == nil {
			_, err = io.CopyN(io.Discard, f, 8<<20)
			f.Close()
			err = cmp.Or(err, errors.New("no end after 8 MiB")) // Open streams the output
		}
		return err
	},
	"FileSystem.ReadDir":   func(ctx context.Context, h *hostile) error { _, err := h.fs.ReadDir(ctx, "/"); return err },
	"FileSystem.ReadFile":  nil, // keeps the whole content in memory, like os.ReadFile
	"FileSystem.Readlink":  func(ctx context.Context, h *hostile) error { _, err := h.fs.Readlink(ctx, "f"); return err },
	"FileSystem.RealPath":  func(ctx context.Context, h *hostile) error { _, err := h.fs.RealPath(ctx, "f"); return err },
	"FileSystem.Remove":    func(ctx context.Context, h *hostile) error { return h.fs.Remove(ctx, "f") },
	"FileSystem.RemoveAll": func(ctx context.Context, h *hostile) error { return h.fs.RemoveAll(ctx, "f") },
	"FileSystem.Rename":    func(ctx context.Context, h *hostile) error { return h.fs.Rename(ctx, "f", "g") },
	"FileSystem.Stat":      func(ctx context.Context, h *hostile) error { _, err := h.fs.Stat(ctx, "f"); return err },
	"FileSystem.Symlink":   func(ctx context.Context, h *hostile) error { return h.fs.Symlink(ctx, "f", "g") },
	"FileSystem.Truncate":  func(ctx context.Context, h *hostile) error { return h.fs.Truncate(ctx, "f", 1) },
	"FileSystem.WriteFile": nil, // uses only the API

	"User.AddToGroup":     func(ctx context.Context, h *hostile) error { return h.user.AddToGroup(ctx, "g") },
	"User.CommandContext": nil, // runs the caller's program
	"User.LookPath":       func(ctx context.Context, h *hostile) error { _, err := h.user.LookPath(ctx, "x"); return err },
	"FileSystem.CopyFS": func(ctx context.Context, h *hostile) error {
		return h.user.FS().CopyFS(ctx, "d", fstest.MapFS{"f": &fstest.MapFile{}}, nil)
	},
	"FileSystem.DownloadDir": func(ctx context.Context, h *hostile) error {
		return h.user.FS().DownloadDir(ctx, ".", h.local+"/d", nil)
	},
	"FileSystem.DownloadFile": nil, // writes to a file, up to MaxBytes
	"User.RemoveFromGroup":    func(ctx context.Context, h *hostile) error { return h.user.RemoveFromGroup(ctx, "g") },
	"User.RunCommand":         nil, // runs the caller's program
	"User.StartCommand":       nil,
	"FileSystem.UploadDir":    func(ctx context.Context, h *hostile) error { return h.user.FS().UploadDir(ctx, h.local, "d", nil) },
	"FileSystem.WriteFiles": func(ctx context.Context, h *hostile) error {
		return h.user.FS().WriteFiles(ctx, []sandbox.File{{Path: "f", Content: []byte("x")}}, nil)
	},

	"Sandbox.CreateUser":  func(ctx context.Context, h *hostile) error { _, err := h.sb.CreateUser(ctx, "u"); return err },
	"Sandbox.CreateGroup": func(ctx context.Context, h *hostile) error { _, err := h.sb.CreateGroup(ctx, "g"); return err },

	// These connect to a server in the sandbox, whose response does not end.
	"terminal.Open": func(ctx context.Context, h *hostile) error { _, err := terminal.Open(ctx, h.sb, nil); return err },
	"Sandbox.WaitForPort": func(ctx context.Context, h *hostile) error {
		ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Second, errors.New("the test's limit"))
		defer cancel()
		_, err := h.sb.WaitForPort(ctx, 3000, &sandbox.WaitForPortOptions{Status: 200})
		return err
	},
}

// endlessPrograms are scripts that replace the helper programs.
var endlessPrograms = map[string]string{
	"output": `exec /usr/bin/yes`,
	"errors": `exec /usr/bin/yes >&2`,
	// This is a valid listing without an end. The client stops at the limit of entries.
	"entries": `exec /usr/bin/awk 'BEGIN { for (;;) printf "f 644 0 0 0 0.0 0.0 0.0 1 %d 1 0 a%d%c", i, i++, 0 }'`,
}

// listings are the calls that read a listing. They keep up to 250,000 entries in memory.
var listings = []string{"FileSystem.ReadDir", "FileSystem.IOFS", "FileSystem.WalkDir"}

// listingMB is the maximum memory of a process in MB for these calls.
const listingMB = 256.0

// defaultCalls has one call for each way to read output. By default, only these run, and
// only with endless output. With SANDBOX_SLOW=1, every call runs with every program.
var defaultCalls = []string{"FileSystem.Chmod", "FileSystem.Open", "FileSystem.WalkDir", "FileSystem.DownloadDir"}

type endlessReport struct {
	Case  string
	Error string
	MB    float64
	Took  time.Duration
}

// TestEndlessClient makes the calls. TestEndlessPrograms starts it in a process of its own.
func TestEndlessClient(t *testing.T) {
	text := os.Getenv(endlessEnv)
	if text == "" {
		return
	}
	var job transferJob
	require.NoError(t, json.Unmarshal([]byte(text), &job))
	for kind, script := range endlessPrograms {
		if !needs.Slow() && kind != "output" {
			continue
		}
		server := endlessServer(t, kind)
		standard := http.DefaultTransport.(*http.Transport)
		standard.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server)
		}
		c, err := sandbox.NewClient(&sandbox.ClientOptions{
			BaseURL: terminalProxy(t, job.URL, server), Credentials: auth.Static(auth.Credentials{Token: "any", TeamID: "team_emulator", ProjectID: "prj_emulator"}),
		})
		require.NoError(t, err)
		sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Timeout: time.Hour, Ports: []int{3000}})
		require.NoError(t, err)
		var programs []sandbox.File
		for name := range strings.FieldsSeq("base64 bash cat chgrp chmod chown cp dd dirname env find getent gpasswd gzip head id ln ls mkdir mktemp mv readlink realpath rm sh sha256sum stat sudo tail tar test touch truncate useradd groupadd usermod wc") {
			programs = append(programs, sandbox.File{Path: "evil/" + name, Content: []byte("#!/bin/sh\n" + script + "\n"), Mode: new(fs.FileMode(0o755))})
		}
		require.NoError(t, sb.WriteFiles(t.Context(), programs, nil))
		// Create the user's home directory. This fails if the sandbox can't have users.
		_, _ = sb.RunCommand(t.Context(), "mkdir", []string{"-p", "-m", "777", "/home/u"}, &sandbox.CommandOptions{Sudo: true})
		require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Env: sandbox.Env{"PATH": sb.Cwd() + "/evil"}}))
		user, err := sb.AsUser("u")
		require.NoError(t, err)
		h := &hostile{sb: sb, fs: sb.FS(), user: user, local: job.Dir}
		for name, call := range endlessCalls {
			if call == nil || kind == "entries" && !slices.Contains(listings, name) || !needs.Slow() && !slices.Contains(defaultCalls, name) {
				continue
			}
			debug.FreeOSMemory()
			require.NoError(t, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // resets the peak of the process's memory
			begin := time.Now()
			r := endlessReport{Case: name + "/" + kind}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			if err := call(ctx, h); err != nil {
				r.Error = err.Error()
			}
			if ctx.Err() != nil {
				r.Error = "it took until its context ended: " + r.Error
			}
			cancel()
			r.MB, r.Took = peakMB(t), time.Since(begin)
			out, err := json.Marshal(r)
			require.NoError(t, err)
			fmt.Printf("\nREPORT %s\n", out)
		}
		require.NoError(t, sb.Delete(t.Context(), nil))
		c.CloseIdleConnections()
	}
}

// TestEndlessPrograms makes each call that runs helper programs, while these write without
// end. The call returns an error, and the process does not need much memory.
func TestEndlessPrograms(t *testing.T) {
	t.Parallel()
	for _, typ := range []reflect.Type{reflect.TypeFor[*sandbox.FileSystem](), reflect.TypeFor[*sandbox.User]()} {
		for m := range typ.Methods() {
			if m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]() {
				assert.Contains(t, endlessCalls, typ.Elem().Name()+"."+m.Name)
			}
		}
	}
	url := startServer(t)
	job, err := json.Marshal(transferJob{URL: url, Dir: t.TempDir()})
	require.NoError(t, err)
	client := exec.Command(os.Args[0], "-test.run=^TestEndlessClient$", "-test.timeout=30m")
	client.Env = append(os.Environ(), endlessEnv+"="+string(job))
	out, err := client.CombinedOutput()
	require.NoError(t, err, string(out))
	cases := 0
	for line := range bytes.Lines(out) {
		rest, ok := bytes.CutPrefix(line, []byte("REPORT "))
		if !ok {
			continue
		}
		cases++
		var r endlessReport
		require.NoError(t, json.Unmarshal(rest, &r))
		t.Logf("%-40s %6.1f MB %8v  %s", r.Case, r.MB, r.Took.Round(time.Millisecond), r.Error)
		most := endlessMB
		if strings.HasSuffix(r.Case, "/entries") {
			most = listingMB
		}
		assert.Less(t, r.MB, most, r.Case)
		assert.NotEmpty(t, r.Error, r.Case)
	}
	least := 70
	if !needs.Slow() {
		least = len(defaultCalls) - 1
	}
	assert.Greater(t, cases, least)
}
