package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// The emulator is a process of its own, as the platform is elsewhere: its
// sandboxes run on when this process is killed, and the next one finds them.

// emulatorArg makes this program the emulator.
const emulatorArg = "-serve-emulator"

// emulator is how a running one is reached. It is kept in the emulator's folder.
type emulator struct {
	PID                           int
	URL, Token, TeamID, ProjectID string
}

const (
	emulatorFile = "address.json"
	// emulatorIdle is after how long without a request an emulator whose
	// sandboxes have all stopped ends.
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

// alive reports whether the emulator responds.
func (e *emulator) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/v2/sandboxes?project="+e.ProjectID+"&limit=1", nil)
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+e.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// startEmulator returns the emulator of a folder, which it starts unless it runs.
func startEmulator(ctx context.Context, dir string) (*emulator, error) {
	if e, err := readEmulator(dir); err == nil && e.alive(ctx) {
		return e, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	_ = os.Remove(filepath.Join(dir, emulatorFile)) // of one that is gone
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self, emulatorArg, dir) //nolint:gosec // this program
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = ofItsOwn()
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
			text, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("it ended at once: %w\n%s", err, text)
		case <-ctx.Done():
			tick.Stop()
			return nil, ctx.Err()
		}
	}
}

// stop ends the emulator, which keeps its sandboxes' files.
func (e *emulator) stop() error {
	p, err := os.FindProcess(e.PID)
	if err != nil {
		return err
	}
	if err := askToEnd(p); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// serveEmulator is the emulator's process.
func serveEmulator(ctx context.Context, dir string) (err error) {
	used := make(chan struct{}, 1)
	srv, err := sandboxtest.NewServer(&sandboxtest.Options{
		Dir: filepath.Join(dir, "state"),
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
	defer func() { err = errors.Join(err, srv.Close()) }()
	c := srv.Credentials()
	data, err := json.Marshal(emulator{PID: os.Getpid(), URL: srv.URL, Token: c.Token, TeamID: c.TeamID, ProjectID: c.ProjectID})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, emulatorFile)
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	defer os.Remove(file)
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
				return nil // left behind by a process that was killed
			}
			idle.Reset(emulatorIdle)
		}
	}
}

func runsAny(ctx context.Context, c *sandbox.Client) bool {
	for info, err := range c.List(ctx, nil) {
		if err == nil && info.Status != sandbox.StatusStopped {
			return true
		}
	}
	return false
}
