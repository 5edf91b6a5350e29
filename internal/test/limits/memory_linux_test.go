package limits_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// These variables mark the processes that run TestMemoryServer and TestMemoryClient. The
// client needs a process of its own, because the test measures the memory of the process.
const (
	serverEnv = "SANDBOX_TEST_SERVER"
	clientEnv = "SANDBOX_TEST_CLIENT"
)

// transferJob is the job of the client process.
type transferJob struct {
	URL   string
	Sizes []int64
	Dir   string
}

// transferReport is the result of the client process for one size.
type transferReport struct {
	Size int64
	// Up and Down are the times to upload and download one file, and Dir is the time to
	// download the directory that contains it.
	Up, Down, Dir time.Duration
	PeakMB        float64
}

// TestMemoryServer runs the emulator, in a process of its own.
func TestMemoryServer(t *testing.T) {
	if os.Getenv(serverEnv) == "" {
		return
	}
	srv, err := sandboxtest.NewServer(&sandboxtest.Options{Token: "any"})
	require.NoError(t, err)
	defer srv.Close()
	fmt.Printf("\nURL %s\n", srv.URL)
	_, _ = io.Copy(io.Discard, os.Stdin) // waits until the test ends
}

// TestMemoryClient makes the transfers, in a process of its own.
func TestMemoryClient(t *testing.T) {
	if os.Getenv(clientEnv) == "" {
		return
	}
	var job transferJob
	require.NoError(t, json.Unmarshal([]byte(os.Getenv(clientEnv)), &job))
	c, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: job.URL, Credentials: auth.Static(auth.Credentials{Token: "any", TeamID: "team_emulator", ProjectID: "prj_emulator"})})
	require.NoError(t, err)
	defer c.CloseIdleConnections()
	sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Timeout: time.Hour})
	require.NoError(t, err)
	for _, size := range job.Sizes {
		r := transferReport{Size: size}
		begin := time.Now()
		require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{{Path: "large", Reader: io.NewSectionReader(&pattern{}, 0, size)}}, nil))
		r.Up = time.Since(begin)
		begin = time.Now()
		dst := filepath.Join(job.Dir, "large")
		require.NoError(t, sb.FS().DownloadFile(t.Context(), "large", dst, nil))
		r.Down = time.Since(begin)
		assertPattern(t, dst, size)
		begin = time.Now()
		require.NoError(t, sb.FS().DownloadDir(t.Context(), ".", job.Dir, nil))
		r.Dir = time.Since(begin)
		assertPattern(t, dst, size)
		r.PeakMB = peakMB(t)
		require.NoError(t, os.Remove(dst))
		out, err := json.Marshal(r)
		require.NoError(t, err)
		fmt.Printf("\nREPORT %s\n", out)
	}
	require.NoError(t, sb.Delete(context.WithoutCancel(t.Context()), nil))
}

// pattern is a reproducible stream of bytes that gzip compresses by half.
type pattern struct{ at uint64 }

func (p *pattern) Read(b []byte) (int, error) {
	n, err := p.ReadAt(b, int64(p.at))
	p.at += uint64(n)
	return n, err
}

// ReadAt implements io.ReaderAt.
func (*pattern) ReadAt(b []byte, from int64) (int, error) {
	p := pattern{uint64(from)}
	for i := range b {
		if p.at&4 == 0 {
			b[i] = byte(p.at * p.at * 0x9E3779B97F4A7C15 >> 56)
		} else {
			b[i] = 'x'
		}
		p.at++
	}
	return len(b), nil
}

func assertPattern(t *testing.T, path string, size int64) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	sum := func(r io.Reader) hash.Hash {
		h := sha256.New()
		n, err := io.CopyBuffer(h, struct{ io.Reader }{r}, make([]byte, 64<<10))
		require.NoError(t, err)
		require.Equal(t, size, n)
		return h
	}
	assert.Equal(t, sum(io.LimitReader(&pattern{}, size)).Sum(nil), sum(f).Sum(nil))
}

// peakMB returns the peak of this process's resident memory.
func peakMB(t *testing.T) float64 {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			require.NoError(t, err)
			return float64(kb) / 1024
		}
	}
	t.Fatal("/proc/self/status has no VmHWM")
	return 0
}

// startServer runs the emulator in a process of its own and returns its address.
func startServer(t testing.TB) string {
	server := exec.Command(os.Args[0], "-test.run=^TestMemoryServer$", "-test.timeout=30m")
	server.Env = append(os.Environ(), serverEnv+"=1")
	server.Stderr = os.Stderr
	stdin, err := server.StdinPipe()
	require.NoError(t, err)
	stdout, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		stdin.Close()
		assert.NoError(t, server.Wait())
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "URL "); ok {
			return url
		}
	}
	t.Fatal("the emulator has not printed its address: ", lines.Err())
	return ""
}

// transfers runs both processes, and returns the report for each size.
func transfers(t testing.TB, sizes ...int64) []transferReport {
	url := startServer(t)
	job, err := json.Marshal(transferJob{URL: url, Sizes: sizes, Dir: t.TempDir()})
	require.NoError(t, err)
	client := exec.Command(os.Args[0], "-test.run=^TestMemoryClient$", "-test.timeout=30m")
	client.Env = append(os.Environ(), clientEnv+"="+string(job))
	out, err := client.CombinedOutput()
	require.NoError(t, err, string(out))
	var reports []transferReport
	for line := range bytes.Lines(out) {
		if rest, ok := bytes.CutPrefix(line, []byte("REPORT ")); ok {
			var r transferReport
			require.NoError(t, json.Unmarshal(rest, &r))
			reports = append(reports, r)
		}
	}
	require.Len(t, reports, len(sizes))
	return reports
}

// TestTransferMemory: a larger transfer does not need more memory. By default the larger
// one is 24 MiB, which is still more than the allowed growth.
func TestTransferMemory(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	least, most := int64(24<<20), int64(192<<20)
	if !needs.Slow() {
		least, most = 2<<20, 24<<20
	}
	r := transfers(t, least, most)
	t.Logf("peak resident memory: %.1f MB after %d MiB, %.1f MB after %d MiB", r[0].PeakMB, least>>20, r[1].PeakMB, most>>20)
	assert.Less(t, r[1].PeakMB-r[0].PeakMB, 16.0)
}

// BenchmarkLargeFile uploads a file of 4 GiB and downloads it, alone and in a directory. It
// fails if the peak of the resident memory reaches 48 MB.
func BenchmarkLargeFile(b *testing.B) {
	const size = 4 << 30
	for b.Loop() {
		r := transfers(b, size)[0]
		b.ReportMetric(float64(size>>20)/r.Up.Seconds(), "MiB/s-up")
		b.ReportMetric(float64(size>>20)/r.Down.Seconds(), "MiB/s-down")
		b.ReportMetric(float64(size>>20)/r.Dir.Seconds(), "MiB/s-dir")
		b.ReportMetric(r.PeakMB, "MB-peak")
		assert.Less(b, r.PeakMB, 48.0)
	}
}

const diskEnv = "SANDBOX_TEST_DISK"

// TestDownloadDisk downloads to a full disk and to a read-only one. It mounts both in a
// separate process with its own mount namespace.
func TestDownloadDisk(t *testing.T) {
	if os.Getenv(diskEnv) != "" {
		downloadDisk(t, os.Getenv(diskEnv))
		return
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestDownloadDisk$", "-test.v")
	cmd.Env = append(os.Environ(), diskEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		needs.Other(t, "this machine permits no mount namespace: %v", err)
	}
	if cmd.ProcessState.ExitCode() == noMounts {
		needs.Missing(t, "mounts in a user namespace")
	}
	require.NoError(t, err, string(out))
}

// noMounts is the exit code if the system permits a namespace, but no mounts in it.
const noMounts = 99

func downloadDisk(t *testing.T, dir string) {
	err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if errors.Is(err, syscall.EPERM) {
		os.Exit(noMounts)
	}
	require.NoError(t, err)
	_, sb := testkit.Start(t, nil)
	ctx := t.Context()
	f := sb.FS()
	require.NoError(t, f.WriteFile(ctx, "d/large", make([]byte, 1<<20), 0o644))
	require.NoError(t, f.AppendFile(ctx, "d/large", []byte("no hole at the end")))
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(i*i>>3) | 1
	}
	require.NoError(t, f.WriteFile(ctx, "d/noise", noise, 0o644))

	small, readonly := filepath.Join(dir, "small"), filepath.Join(dir, "readonly")
	for _, d := range []string{small, readonly} {
		require.NoError(t, os.Mkdir(d, 0o755))
		require.NoError(t, syscall.Mount("tmpfs", d, "tmpfs", 0, "size=256k"))
		t.Cleanup(func() { syscall.Unmount(d, 0) })
	}
	require.NoError(t, os.WriteFile(filepath.Join(small, "dst"), []byte("old"), 0o644))
	require.NoError(t, syscall.Mount("", readonly, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))

	assert.ErrorIs(t, sb.FS().DownloadFile(ctx, "d/noise", filepath.Join(small, "dst"), nil), syscall.ENOSPC)
	data, err := os.ReadFile(filepath.Join(small, "dst"))
	require.NoError(t, err)
	assert.Equal(t, "old", string(data))
	assert.Equal(t, []string{"dst"}, testkit.DirNames(t, small))

	assert.ErrorIs(t, sb.FS().DownloadDir(ctx, "d", filepath.Join(small, "dir"), &sandbox.DownloadDirOptions{Include: []string{"noise"}}), syscall.ENOSPC)
	assert.Empty(t, testkit.DirNames(t, filepath.Join(small, "dir")))

	assert.ErrorIs(t, sb.FS().DownloadFile(ctx, "d/noise", filepath.Join(readonly, "dst"), nil), syscall.EROFS)
	assert.ErrorIs(t, sb.FS().DownloadDir(ctx, "d", readonly, nil), syscall.EROFS)
	assert.ErrorIs(t, sb.FS().DownloadDir(ctx, "d", filepath.Join(readonly, "new"), nil), syscall.EROFS)
	assert.Empty(t, testkit.DirNames(t, readonly))
}
