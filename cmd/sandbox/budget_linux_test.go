package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// maxCopyMemory limits the memory of a copy of any size.
const maxCopyMemory = 64 << 20

// TestCopyMemory copies a file that is larger than the allowed memory, in both
// directions. SANDBOX_COPY_MIB sets another size, such as 4096.
func TestCopyMemory(t *testing.T) {
	t.Parallel()
	mebibytes := 80
	if !needs.Slow() {
		mebibytes = 56 // not 64: the program itself needs more than the other 8
	}
	if v := os.Getenv("SANDBOX_COPY_MIB"); v != "" {
		var err error
		mebibytes, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	// By default this is the test binary, which needs no more memory for a copy.
	ours := func(args ...string) *exec.Cmd { return d.command(t.Context(), args...) }
	if needs.Slow() {
		ours = d.buildRelease()
	}
	numbered(t, filepath.Join(d.dir, "big"), mebibytes)
	for _, args := range [][]string{{"cp", "big", "c:big"}, {"cp", "c:big", "back"}} {
		peak := memoryOf(t, ours(args...))
		assert.Less(t, peak, int64(maxCopyMemory), "%v", args)
		t.Logf("%v: %d MiB of memory for %d MiB", args, peak>>20, mebibytes)
	}
	checkNumbered(t, filepath.Join(d.dir, "back"), mebibytes)
	big, err := os.Open(filepath.Join(d.dir, "big"))
	require.NoError(t, err)
	defer big.Close()
	write := ours("write", "c", "written")
	write.Stdin = big
	for _, cmd := range []*exec.Cmd{write, ours("read", "c", "written")} {
		assert.Less(t, memoryOf(t, cmd), int64(maxCopyMemory), "%v", cmd.Args)
	}
	d.ok("exec", "c", "--", "cmp", "big", "written")
}

// numbered creates a file in which each mebibyte starts with its number.
func numbered(t *testing.T, name string, mebibytes int) {
	t.Helper()
	f, err := os.Create(name)
	require.NoError(t, err)
	for i := range mebibytes {
		_, err := f.WriteAt(binary.BigEndian.AppendUint64(nil, uint64(i)), int64(i)<<20)
		require.NoError(t, err)
	}
	require.NoError(t, f.Truncate(int64(mebibytes)<<20))
	require.NoError(t, f.Close())
}

func checkNumbered(t *testing.T, name string, mebibytes int) {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	require.Equal(t, int64(mebibytes)<<20, info.Size())
	for i := range mebibytes {
		var number [8]byte
		_, err := f.ReadAt(number[:], int64(i)<<20)
		require.NoError(t, err)
		require.EqualValues(t, i, binary.BigEndian.Uint64(number[:]))
	}
}

// memoryOf runs a program and returns its peak memory. It reads /proc until shortly before
// the end, because the kernel's figure for an ended process includes the memory of its
// parent.
func memoryOf(t *testing.T, cmd *exec.Cmd) (peak int64) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	most := regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)) // it may have ended
		if m := most.FindSubmatch(status); m != nil {
			kib, err := strconv.ParseInt(string(m[1]), 10, 64)
			require.NoError(t, err)
			peak = max(peak, kib<<10)
		}
		select {
		case err := <-ended:
			require.NoError(t, err, "%v: %s", cmd.Args, &out)
			require.Positive(t, peak)
			return peak
		case <-tick.C:
		}
	}
}

// buildRelease builds the program as in a release, and returns a function that runs it. By
// default it links the packages that the tests have compiled, which is faster.
func (d *workspace) buildRelease() func(args ...string) *exec.Cmd {
	d.t.Helper()
	program := filepath.Join(d.t.TempDir(), "sandbox")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, ".")
	if needs.Slow() {
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	}
	out, err := build.CombinedOutput()
	require.NoError(d.t, err, string(out))
	return func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(d.t.Context(), program, args...)
		cmd.Dir, cmd.Env = d.dir, slices.DeleteFunc(slices.Clone(d.env), func(v string) bool { return strings.HasPrefix(v, asProgram+"=") })
		return cmd
	}
}

// TestBudgets builds the program as in a release, and compares it with the official CLI.
func TestBudgets(t *testing.T) {
	official := officialCLI(t)
	d := newWorkspace(t, nil)
	ours := d.buildRelease()
	info, err := os.Stat(ours().Path)
	require.NoError(t, err)
	t.Logf("one file of %.1f MB", float64(info.Size())/1e6)
	assert.Less(t, info.Size(), int64(20e6))
	d.ok("create", "--name", "c")
	d.unset(asProgram) // the next commands run the built program
	theirs := func(args ...string) *exec.Cmd { return d.officialCommand(official, args) }
	// Compare CPU time: wall time includes other work of the machine.
	median := func(n int, command func(...string) *exec.Cmd, args ...string) time.Duration {
		var took []time.Duration
		for range n {
			cmd := command(args...)
			cmd.Stdout = io.Discard
			require.NoError(t, cmd.Run())
			took = append(took, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		}
		slices.Sort(took)
		return took[n/2]
	}
	start, theirStart := median(21, ours, "--version"), median(5, theirs, "--version")
	list, theirList := median(11, ours, "ls"), median(3, theirs, "ls")
	median(1, ours, "__complete", "exec", "") // fills the cache
	completion := median(11, ours, "__complete", "exec", "")
	t.Logf("start: %v, the official CLI %v; ls: %v, %v; a completion: %v", start, theirStart, list, theirList, completion)
	assert.Less(t, start, theirStart/10)
	assert.Less(t, list, theirList/4)
	assert.Less(t, completion, theirStart/2)

	const mebibytes = 96
	numbered(t, filepath.Join(d.dir, "big"), mebibytes)
	memory, theirMemory := memoryOf(t, ours("cp", "big", "c:/vercel/big")), memoryOf(t, theirs("cp", "big", "c:/vercel/theirs"))
	t.Logf("memory to copy %d MiB: %d MiB, the official CLI %d MiB", mebibytes, memory>>20, theirMemory>>20)
	assert.Less(t, memory, int64(maxCopyMemory))
	assert.Less(t, memory, theirMemory/3)
}
