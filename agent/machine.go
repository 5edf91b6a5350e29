package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/glob"
)

func machineTools() []*tool {
	return []*tool{
		newTool("port_url", "Return the public address of a port, exposing the port if need be, and wait until something answers there", portURL),
		newTool("create_snapshot", "Save the files as they are. This stops the sandbox: all of its processes end.", createSnapshot),
		newTool("restore_snapshot", "Restore the files of a snapshot of this sandbox. All of its processes end.", restoreSnapshot).asDestructive(),
		newTool("stop_sandbox", "Stop the sandbox, so that it costs nothing. Its files are kept; the next call starts it again.", stopSandbox).asDestructive().asFindingSandbox(),
	}
}

type portInput struct {
	Port int     `json:"port" is:"from 1024 to 65535"`
	Wait float64 `json:"wait_seconds,omitempty" is:"how long to wait for an answer; 10 by default, 60 at most"`
}

func portURL(ctx context.Context, c *call, in *portInput) (Result, error) {
	address, err := c.sb.URL(in.Port)
	if errors.Is(err, sandbox.ErrNoRoute) {
		ports := []int{in.Port}
		for _, r := range c.sb.Routes() {
			ports = append(ports, r.Port)
		}
		if err := c.sb.Update(ctx, &sandbox.UpdateOptions{Ports: ports}); err != nil {
			return Result{}, err
		}
		address, err = c.sb.URL(in.Port)
	}
	if err != nil {
		return Result{}, err
	}
	seconds := min(in.Wait, maxWait)
	if in.Wait <= 0 {
		seconds = 10
	}
	wait, cancel := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
	defer cancel()
	_, err = c.sb.WaitForPort(wait, in.Port, nil)
	state := "A server answers there."
	switch {
	case ctx.Err() != nil, errors.Is(err, sandbox.ErrStopped):
		return Result{}, err
	case err != nil:
		state = "Nothing answers there yet: is the server running, and does it listen on 0.0.0.0?"
	}
	return Result{Text: fmt.Sprintf("Port %d: %s %s", in.Port, oneLine(address), state), Data: map[string]any{"url": address}}, nil
}

type noInput struct{}

func createSnapshot(ctx context.Context, c *call, _ *noInput) (Result, error) {
	snap, err := c.sb.Snapshot(ctx, nil)
	if err != nil {
		return Result{}, err
	}
	return Result{
		Text: "Saved. snapshot_id: " + oneLine(snap.ID()) + ". The sandbox stopped; the next call starts it again.",
		Data: map[string]any{"snapshot_id": snap.ID()},
	}, nil
}

type snapshotInput struct {
	ID string `json:"snapshot_id" is:"the snapshot, as create_snapshot has returned it"`
}

func restoreSnapshot(ctx context.Context, c *call, in *snapshotInput) (Result, error) {
	own := false
	for s, err := range c.sb.ListSnapshots(ctx, nil) {
		if err != nil {
			return Result{}, err
		}
		if own = s.ID == in.ID && s.Status == "created"; own {
			break
		}
	}
	if !own {
		return Result{}, modelErrorf("This sandbox has no snapshot %q.", oneLine(in.ID))
	}
	// Stop first. A stop saves the current files, and the next session would start from those.
	if _, err := c.sb.Stop(ctx, nil); err != nil {
		return Result{}, err
	}
	if err := c.sb.Update(ctx, &sandbox.UpdateOptions{CurrentSnapshotID: in.ID}); err != nil {
		return Result{}, err
	}
	return Result{Text: "The sandbox stopped, and has the files of " + oneLine(in.ID) + " from the next call on."}, nil
}

// stopper is implemented by Sessions that can stop a sandbox without resuming it first.
type stopper interface {
	// stop returns the sandbox that it found, even if stopping it failed. It returns nil
	// if there is nothing to stop.
	stop(ctx context.Context, conversation string) (*sandbox.Sandbox, error)
}

func stopSandbox(ctx context.Context, c *call, _ *noInput) (Result, error) {
	sb, err := c.t.stop(ctx, c.Conversation)
	if err != nil && sb != nil {
		c.sb, c.state = sb, c.t.stateFor(c.Conversation)
		return c.t.checkEnd(ctx, c, Result{}, err)
	}
	if err != nil {
		return Result{}, err
	}
	return Result{Text: "The sandbox stopped. The next call starts it again, with its files."}, nil
}

// stop stops the sandbox of a conversation. It returns the same as the method of stopper.
func (t *Toolset) stop(ctx context.Context, conversation string) (*sandbox.Sandbox, error) {
	if s, ok := t.sessions.(stopper); ok {
		sb, err := s.stop(ctx, conversation)
		if err != nil && sb == nil && t.client == nil {
			err = &sessionError{err}
		}
		return sb, err
	}
	sb, release, err := t.acquire(ctx, conversation)
	if err != nil {
		return nil, err
	}
	defer release()
	_, err = sb.Stop(ctx, nil)
	return sb, err
}

type saveInput struct {
	Path location `json:"path" is:"the file in the sandbox"`
	Name string   `json:"name,omitempty" is:"the name in the user's folder; the file's own by default"`
}

// checkArtifactName checks the name of an artifact. The folder's os.Root refuses names that lead outside.
func checkArtifactName(name string) (string, error) {
	name = filepath.FromSlash(name)
	if !filepath.IsLocal(name) || name == "." {
		return "", modelErrorf("The name of an artifact is a path inside of the folder.")
	}
	if glob.Git(name) {
		return "", modelErrorf("Git's own files can't be artifacts.")
	}
	return name, nil
}

func (in *saveInput) setDefaults() {
	if in.Name == "" {
		in.Name = path.Base(in.Path.given)
	}
}

func saveArtifact(ctx context.Context, c *call, in *saveInput) (Result, error) {
	name, err := c.resolvePath(ctx, in.Path)
	if err != nil {
		return Result{}, err
	}
	as, err := checkArtifactName(in.Name)
	if err != nil {
		return Result{}, err
	}
	info, err := c.statReadable(ctx, name)
	if err != nil {
		return Result{}, err
	}
	if info != nil && info.IsDir() {
		return Result{}, modelErrorf("%s is a directory: make an archive of it first.", oneLine(in.Path.given))
	}
	data, err := c.readForEdit(ctx, name)
	if err != nil {
		return Result{}, err
	}
	root := c.t.opts.Artifacts
	if !glob.NewGuard(root, nil).Keeps(filepath.ToSlash(as), false) {
		return Result{}, modelErrorf("Git or an editor might run %s, or a file next to it, without being asked: it can't be an artifact.", oneLine(in.Name))
	}
	if err := root.MkdirAll(filepath.Dir(as), 0o755); err != nil {
		return Result{}, localError(err)
	}
	// Write the file under a random name, and rename it when it is complete.
	part := filepath.Join(filepath.Dir(as), "."+rand.Text()+".part")
	if err := root.WriteFile(part, data, fileMode); err != nil {
		return Result{}, localError(errors.Join(err, root.Remove(part)))
	}
	if err := root.Rename(part, as); err != nil {
		return Result{}, localError(errors.Join(err, root.Remove(part)))
	}
	c.t.budget.countResult(len(data), 0)
	return Result{Text: fmt.Sprintf("Saved %d bytes as %s.", len(data), oneLine(in.Name)), Data: map[string]any{"artifact": as}}, nil
}

type loadInput struct {
	Name string   `json:"name" is:"the file in the user's folder"`
	Path location `json:"path,omitzero" is:"where to put it in the sandbox; its name, in the working directory, by default"`
}

func (in *loadInput) setDefaults() { in.Path.setDefault(path.Base(filepath.ToSlash(in.Name))) }

func loadArtifact(ctx context.Context, c *call, in *loadInput) (Result, error) {
	from, err := checkArtifactName(in.Name)
	if err != nil {
		return Result{}, err
	}
	to, err := c.resolvePath(ctx, in.Path)
	if err != nil {
		return Result{}, err
	}
	// Check this first: opening a pipe would block.
	if info, err := c.t.opts.Artifacts.Stat(from); err != nil || !info.Mode().IsRegular() {
		return Result{}, modelErrorf("There is no file %q in the folder.", oneLine(in.Name))
	}
	f, err := c.t.opts.Artifacts.Open(from)
	if err != nil {
		return Result{}, localError(err)
	}
	defer f.Close()
	most := c.limits().FileBytes
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return Result{}, localError(err)
	}
	if int64(len(data)) > most {
		return Result{}, modelErrorf("The file has more than %d bytes.", most)
	}
	c.state.editing.Lock()
	defer c.state.editing.Unlock()
	if err := c.sb.FS().WriteFile(ctx, to, data, fileMode); err != nil {
		return Result{}, err
	}
	c.t.budget.countResult(len(data), 0)
	return Result{Text: fmt.Sprintf("Wrote %d bytes to %s.", len(data), oneLine(in.Path.given))}, nil
}

// localError converts an error of the folder of artifacts on this machine. The model can fix a
// missing directory. Only the program can fix anything else.
func localError(err error) error {
	if errors.Is(err, os.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return modelErrorf("The folder of artifacts has no such directory, or a file is in its place.")
	}
	return &diskError{err}
}

// diskError is an error of this machine's disk. It does not wrap its cause, which textForModel
// would mistake for an error of a file in the sandbox.
type diskError struct{ err error }

func (e *diskError) Error() string { return "agent: artifacts: " + e.err.Error() }
