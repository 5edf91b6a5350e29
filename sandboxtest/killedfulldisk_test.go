package sandboxtest_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// smallDisk is a separate file system that servers can fill. It outlives the servers,
// because another process of the test stays in its mount namespace.
type smallDisk struct {
	t     *testing.T
	dir   string
	enter []string // the start of a command line that runs a program in the mount namespace
}

func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	needs.Programs(t, "unshare", "nsenter", "mount", "truncate", "dd", "mountpoint")
	d := &smallDisk{t: t, dir: victimsDir(t)}
	unshare, nsenter := "-m", []string{"nsenter", "-m"}
	if os.Geteuid() != 0 {
		unshare, nsenter = "-rm", []string{"nsenter", "-m", "-U", "--preserve-credentials"}
	}
	holder := exec.Command("unshare", unshare, "sh", "-c", `mount -t tmpfs -o size=8m disk "$0" && echo mounted && exec cat`, d.dir)
	hold, err := holder.StdinPipe()
	require.NoError(t, err)
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	var said strings.Builder
	holder.Stderr = &said
	require.NoError(t, holder.Start())
	t.Cleanup(func() { _ = hold.Close(); _ = holder.Wait() })
	if _, err := io.ReadFull(out, make([]byte, len("mounted\n"))); err != nil {
		_ = holder.Wait()
		needs.Missing(t, "the right to mount a file system: %s", &said)
	}
	d.enter = slices.Concat(nsenter, []string{"-t", fmt.Sprint(holder.Process.Pid), "--"})
	// If the test runs in a chroot, nsenter leaves the chroot and reaches the machine's own
	// disk.
	if err := exec.Command(d.enter[0], append(d.enter[1:], "mountpoint", "-q", d.dir)...).Run(); err != nil {
		needs.Missing(t, "to enter a mount namespace where it is: %v", err)
	}
	return d
}

// sh runs a script in the disk's directory.
func (d *smallDisk) sh(script string) {
	d.t.Helper()
	out, err := exec.Command(d.enter[0], append(d.enter[1:], "sh", "-c", `cd "$0" && `+script, d.dir)...).CombinedOutput()
	require.NoError(d.t, err, "%s", out)
}

// fill fills the disk until at most leave KiB are free.
func (d *smallDisk) fill(leave int) {
	d.t.Helper()
	d.sh("{ dd if=/dev/zero bs=1k count=16k 2>/dev/null >>ballast; true; }") // twice the size of the disk
	if leave > 0 {
		d.sh(fmt.Sprintf("truncate -s -%dK ballast", leave))
	}
}

// try starts a server that stores its state on the disk.
func (d *smallDisk) try(mode sandboxtest.Mode) (v *victim, output string) {
	d.t.Helper()
	return tryVictim(d.t, mode, d.dir+"/state", exec.Command(d.enter[0], append(d.enter[1:], os.Args[0], "-test.run=^TestVictim$")...))
}

func (d *smallDisk) start(mode sandboxtest.Mode) *victim {
	d.t.Helper()
	v, output := d.try(mode)
	require.NotEmpty(d.t, v.url, "%s%s", output, &v.stderr)
	return v
}

// records is what a server on a small disk has confirmed: files, and also changes and
// drives, for which it creates no files.
type records struct {
	ledger
	timeouts map[string][]int // as ledger.sandboxes
	drives   []string
	refused  atomic.Int64 // changes refused because the disk was full
}

// answered matches the errors of requests to which the server has responded.
var answered = regexp.MustCompile(`: [0-9]{3} `)

// noRoom reports whether a request failed because the disk is full. A broken connection
// does not count.
func (r *records) noRoom(t *testing.T, err error) bool {
	if answered.MatchString(err.Error()) {
		r.refused.Add(1)
		return assert.Regexp(t, `: 507 .*"insufficient_storage"`, err.Error())
	}
	return strings.HasSuffix(err.Error(), " has failed") // a script in the sandbox found no room
}

// changeTimeout changes the timeout of a sandbox.
func (r *records) changeTimeout(v *victim, name string) error {
	timeout := 60_000 + mathrand.IntN(1_000_000)
	r.mu.Lock()
	r.timeouts[name] = append(r.timeouts[name], timeout)
	r.mu.Unlock()
	err := v.try("PATCH", "/v2/sandboxes/"+name+"?projectId=prj", obj{"timeout": timeout}, new(wire.UpdateResponse))
	if err == nil {
		r.mu.Lock()
		r.timeouts[name] = []int{timeout}
		r.mu.Unlock()
	}
	return err
}

// makeDrive makes another drive.
func (r *records) makeDrive(v *victim) error {
	name := "d-" + strings.ToLower(rand.Text()[:12])
	err := v.try("POST", "/v2/sandboxes/drives/"+name+"?projectId=prj", obj{"projectId": "prj"}, new(wire.DriveResponse))
	if err == nil {
		r.mu.Lock()
		r.drives = append(r.drives, name)
		r.mu.Unlock()
	}
	return err
}

// saveFile writes a sandbox's file and saves it by a stop or a snapshot. If there is no
// space, the file stays unchanged.
func (r *records) saveFile(v *victim, name string, snapshot bool) error {
	var at wire.SandboxResponse
	if err := v.try("GET", "/v2/sandboxes/"+name+"?projectId=prj&resume=true", nil, &at); err != nil {
		return err
	}
	content := rand.Text()
	sum := sha256.Sum256([]byte(content))
	fresh := hex.EncodeToString(sum[:])
	r.set(name, append(r.get(name), fresh)...)
	if _, err := v.sh(at.Session.ID, "printf %s "+content+" >new && mv new file && seq "+fmt.Sprint(mathrand.IntN(9000))+" >more && echo done"); err != nil {
		return err
	}
	if !snapshot {
		if err := v.try("POST", session(at.Session.ID)+"/stop", obj{}, new(wire.StopResponse)); err != nil {
			return err
		}
		r.set(name, fresh)
		return nil
	}
	var response wire.SnapshotResponse
	if err := v.try("POST", session(at.Session.ID)+"/snapshot", obj{}, &response); err != nil {
		return err
	}
	r.set(name, fresh)
	if !strings.HasSuffix(name, "1") { // snapshots of other sandboxes are evicted
		r.mu.Lock()
		r.snapshots[response.Snapshot.ID] = fresh
		r.mu.Unlock()
	}
	return nil
}

// work changes a sandbox until the server is killed.
func (r *records) work(t *testing.T, v *victim, name string) {
	for i := 0; ; i++ {
		for _, change := range []func() error{
			func() error { return r.changeTimeout(v, name) },
			func() error { return r.saveFile(v, name, i%3 == 2) },
			func() error { return r.makeDrive(v) },
		} {
			if err := change(); err != nil && !r.noRoom(t, err) {
				return
			}
		}
	}
}

// check compares the server's state with the records.
func (r *records) check(v *victim, round int) (checked int) {
	t := v.t
	for name, timeouts := range r.timeouts {
		var at wire.SandboxResponse
		require.NoError(t, v.try("GET", "/v2/sandboxes/"+name+"?projectId=prj", nil, &at))
		require.Contains(t, timeouts, int(time.Duration(at.Sandbox.Timeout).Milliseconds()), "round %d, %s", round, name)
		r.timeouts[name] = []int{int(time.Duration(at.Sandbox.Timeout).Milliseconds())}
		checked++
	}
	for _, name := range r.drives {
		path := "/v2/sandboxes/drives/" + name + "?projectId=prj"
		require.NoError(t, v.try("GET", path, nil, new(wire.DriveResponse)), "round %d", round)
		require.NoError(t, v.try("DELETE", path, nil, new(map[string]any)), "round %d", round)
		checked++
	}
	r.drives = nil
	return checked + v.check(&r.ledger, round)
}

// TestKilledOnAFullDisk kills servers whose disk is full, or nearly. Everything that they
// have confirmed is there afterwards, and they respond with 507 to what they can't save.
func TestKilledOnAFullDisk(t *testing.T) {
	t.Parallel()
	needs.Long(t, "it kills servers that work")
	rounds := killRounds(t)
	inModes(t, sandboxtest.Options{}, func(t *testing.T, probe *sandboxtest.Server, _ *raw) {
		t.Parallel()
		d := newSmallDisk(t)
		names := []string{"full-0", "full-1", "full-2"}
		r := &records{ledger: ledger{sandboxes: make(map[string][]string), snapshots: make(map[string]string)}, timeouts: make(map[string][]int)}
		checked, blocked := 0, 0
		for round := range rounds {
			v := d.start(probe.Mode())
			for _, name := range names {
				if round == 0 {
					require.NoError(t, v.try("POST", "/v2/sandboxes", r.params(name), new(wire.SandboxResponse)))
					require.NoError(t, r.changeTimeout(v, name))
					require.NoError(t, r.saveFile(v, name, false))
				}
			}
			// A change may need only the rest of a page of the disk, so some still succeed.
			for before, changes := r.refused.Load(), 0; r.refused.Load() == before; changes++ {
				require.Less(t, changes, 100, "no change fails on a full disk")
				d.fill(0)
				if err := r.changeTimeout(v, names[0]); err != nil {
					require.True(t, r.noRoom(t, err), "%v", err)
					require.ErrorContains(t, err, ": 507 ")
				}
			}
			d.fill(mathrand.IntN(300))
			var workers sync.WaitGroup
			for _, name := range names {
				workers.Go(func() { r.work(t, v, name) })
			}
			testkit.Linger(time.Duration(50+mathrand.IntN(600)) * time.Millisecond) // the random moment
			v.kill()
			workers.Wait()
			// A start with a full disk may fail, but loses nothing.
			d.fill(0)
			if v, output := d.try(probe.Mode()); v.url == "" {
				blocked++
				assert.Contains(t, output+v.stderr.String(), "no space left on device")
			} else {
				v.kill()
			}
			d.sh("rm ballast")
			v = d.start(probe.Mode())
			checked += r.check(v, round)
			v.kill()
		}
		t.Logf("%d kills, %d objects checked, %d changes refused, %d starts failed on the full disk", rounds, checked, r.refused.Load(), blocked)
	})
}
