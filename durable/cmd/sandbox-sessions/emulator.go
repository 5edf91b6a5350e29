package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable/internal/mutual"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// The emulator is a separate process, like the platform: its sandboxes continue to run if this
// process is killed, and the next process finds them.

// With emulatorArg and a folder as its arguments, this program runs as the emulator.
const emulatorArg = "-serve-emulator"

// emulator is the address of a running emulator. It is stored in the emulator's folder, with
// the key by which the emulator proves its identity: another process that listens at the port
// of a killed emulator gets no token.
type emulator struct {
	PID                           int
	URL, Token, TeamID, ProjectID string
	Key                           []byte
}

const (
	emulatorFile = "address.json"
	// emulatorIdle is how long an emulator without running sandboxes and without users waits
	// for a request before it ends.
	emulatorIdle = 30 * time.Minute
)

func readEmulator(dir string) (*emulator, error) {
	data, err := os.ReadFile(filepath.Join(dir, emulatorFile))
	if err != nil {
		return nil, err
	}
	e := new(emulator)
	return e, json.Unmarshal(data, e)
}

// client returns an HTTP client that talks only to that emulator.
func (e *emulator) client() (*http.Client, error) {
	secure, err := mutual.Client(e.Key)
	if err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig, t.Proxy = secure, nil
	return &http.Client{Transport: t}, nil
}

// alive reports whether the emulator responds.
func (e *emulator) alive(ctx context.Context) bool {
	hc, err := e.client()
	if err != nil {
		return false
	}
	defer hc.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/v2/sandboxes?project="+e.ProjectID+"&limit=1", nil)
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+e.Token)
	resp, err := hc.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// startEmulator returns the emulator of a folder, and starts it unless it runs.
func startEmulator(ctx context.Context, dir string) (*emulator, error) {
	if e, err := readEmulator(dir); err == nil && e.alive(ctx) {
		return e, nil
	}
	_ = os.Remove(filepath.Join(dir, emulatorFile)) // a killed emulator leaves it
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	logFile, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	cmd := exec.Command(self, emulatorArg, dir) //nolint:gosec // this program
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = ownSession()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-tick.C:
			if e, err := readEmulator(dir); err == nil && e.alive(ctx) {
				tick.Stop()
				return e, nil
			}
		case err := <-ended:
			tick.Stop()
			text, _ := os.ReadFile(logFile.Name())
			return nil, fmt.Errorf("the emulator ended at once: %w\n%s", err, text)
		case <-ctx.Done():
			tick.Stop()
			return nil, ctx.Err()
		}
	}
}

// stop ends the emulator and waits until it has saved its sandboxes.
func (e *emulator) stop(ctx context.Context, dir string) error {
	p, err := os.FindProcess(e.PID)
	if err != nil {
		return err
	}
	if err := requestStop(p); errors.Is(err, os.ErrProcessDone) {
		return nil
	} else if err != nil {
		return err
	}
	for tick := time.Tick(lockRetry); ; {
		if _, err := os.Stat(filepath.Join(dir, emulatorFile)); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return fmt.Errorf("the emulator, process %d, does not end: %w", e.PID, ctx.Err())
		}
	}
}

// serveEmulator is the emulator's process.
func serveEmulator(ctx context.Context, dir string) (err error) {
	used := make(chan struct{}, 1)
	srv, err := sandboxtest.NewServer(&sandboxtest.Options{
		Dir: filepath.Join(dir, "state"), Hidden: []string{filepath.Dir(dir)}, // contains the keys of this program
		OnRequest: func(sandboxtest.Request) {
			select {
			case used <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, emulatorFile)
	defer func() { // remove the file last: stop waits for that
		err = errors.Join(err, srv.Close())
		_ = os.Remove(file)
	}()
	key, err := mutual.NewKey()
	if err != nil {
		return err
	}
	addr, err := serveTLS(ctx, key, srv)
	if err != nil {
		return err
	}
	c := srv.Credentials()
	data, err := json.Marshal(emulator{PID: os.Getpid(), URL: "https://" + addr, Token: c.Token, TeamID: c.TeamID, ProjectID: c.ProjectID, Key: key})
	if err != nil {
		return err
	}
	if err := mutual.WriteKey(file, data); err != nil {
		return err
	}
	idle := time.NewTimer(emulatorIdle)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-used:
			idle.Reset(emulatorIdle)
		case <-idle.C:
			if !runsAny(ctx, srv.Client()) {
				users := flock.New(filepath.Join(dir, usersFile))
				if last, err := users.TryLock(); err == nil && last {
					defer users.Unlock() //nolint:errcheck // closing the file unlocks it
					return nil           // all users were killed
				}
			}
			idle.Reset(emulatorIdle)
		}
	}
}

// serveTLS serves the emulator at another address, and only to clients that have the key.
func serveTLS(ctx context.Context, key []byte, srv *sandboxtest.Server) (addr string, err error) {
	secure, err := mutual.Server(key)
	if err != nil {
		return "", err
	}
	to, err := url.Parse(srv.URL)
	if err != nil {
		return "", err
	}
	l, err := tls.Listen("tcp", mutual.IP+":0", secure)
	if err != nil {
		return "", err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.RawQuery = r.In.URL.RawQuery // Out lacks what package url can't parse
		},
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // ignore errors of clients that have disconnected
	}
	// Clients keep an idle connection for 90 s. If the server closed it earlier, they could
	// lose a request.
	hs := &http.Server{Handler: proxy, ReadHeaderTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, ErrorLog: proxy.ErrorLog}
	context.AfterFunc(ctx, func() { _ = hs.Close() })
	go func() { _ = hs.Serve(l) }()
	return l.Addr().String(), nil
}

func runsAny(ctx context.Context, c *sandbox.Client) bool {
	for info, err := range c.List(ctx, nil) {
		if err == nil && info.Status != sandbox.StatusStopped {
			return true
		}
	}
	return false
}
