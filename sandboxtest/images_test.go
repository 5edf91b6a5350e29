package sandboxtest_test

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/go-vercel/sandbox/sandboxtest/internal/rootfs"
)

// tool is a program that needs no library, and prints the name of its image.
const tool = `package main

import (
	"fmt"
	"os"
)

func main() {
	name, err := os.ReadFile("/image")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Printf("tool of %s as %d\n", name, os.Getuid())
}
`

// buildTool builds a static program.
func buildTool(t *testing.T, to string) {
	t.Helper()
	needs.Programs(t, "go")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/main.go", []byte(tool), 0o600))
	cmd := exec.Command("go", "build", "-o", to, "main.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// openToAll creates a directory that every user of the machine can enter, below
// parent or the temporary one.
func openToAll(t *testing.T, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "sandboxtest-") //nolint:usetesting // what t.TempDir makes, its owner alone can enter
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// entriesOf returns the files of a directory as owned by root.
func entriesOf(t *testing.T, dir string) (entries []entry) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		require.NoError(t, err)
		e := entry{name: strings.TrimPrefix(path, dir+"/"), mode: int64(info.Mode().Perm()), kind: tar.TypeDir}
		if !d.IsDir() {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			e.content, e.kind = string(data), tar.TypeReg
		}
		entries = append(entries, e)
		return nil
	}))
	return entries
}

// printed runs a command, which must succeed, and returns its output.
func printed(t *testing.T, sb *sandbox.Sandbox, opts *sandbox.CommandOptions, name string, args ...string) string {
	t.Helper()
	done, err := sb.RunCommand(t.Context(), name, args, opts)
	require.NoError(t, err)
	out, err := done.CombinedOutput(t.Context())
	require.NoError(t, err)
	require.Zero(t, done.ExitCode, "%s", out)
	return strings.TrimSpace(out)
}

// sdk returns a client of this module for a server in another process.
func (v *victim) sdk() *sandbox.Client {
	v.t.Helper()
	transport := new(http.Transport)
	v.t.Cleanup(transport.CloseIdleConnections)
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: v.url, HTTPClient: &http.Client{Transport: transport},
		Credentials: auth.Static(auth.Credentials{Token: v.token, TeamID: "team_emulator", ProjectID: "prj"}),
	})
	require.NoError(v.t, err)
	return client
}

// TestImages runs the programs of two images, and of none, on machines that
// offer the emulator more or fewer features.
func TestImages(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		needs.Missing(t, "Linux")
	}
	dir := openToAll(t, "")
	one, two := dir+"/one: a,b", dir+"/two"
	buildTool(t, one+"/bin/tool")
	rootfs.Make(t, one, "sh", "cat", "id", "ls", "touch", "useradd", "stat")
	rootfs.Copy(t, one+"/bin/tool", two+"/bin/tool") // and nothing else
	require.NoError(t, os.WriteFile(one+"/image", []byte("one"), 0o644))
	require.NoError(t, os.WriteFile(two+"/image", []byte("two"), 0o644))
	require.NoError(t, os.Mkdir(one+"/etc", 0o755))
	require.NoError(t, os.WriteFile(one+"/etc/passwd", []byte("root:x:0:0::/root:/bin/sh\nbuilder:x:1000:1000::/home/builder:/bin/sh\nother:x:4242:4242::/:/bin/sh\n"), 0o644))
	three := gz(t, tarball(t, append(entriesOf(t, one),
		entry{name: "data/its", content: "x", mode: 0o640, owner: 4242},
		entry{name: "data/special", content: "y", mode: 0o4755},
		entry{name: "data/same", kind: tar.TypeLink, link: "data/its"},
		entry{name: "data/link", kind: tar.TypeSymlink, link: "/image"},
		entry{name: "dev/null", kind: tar.TypeChar},
	)...))
	require.NoError(t, os.WriteFile(dir+"/three.tar.gz", three, 0o644))
	require.NoError(t, os.Symlink(one, dir+"/link")) // with a name that overlayfs could misinterpret
	images := victimImagesEnv + "=team/one:v1=" + dir + "/link"
	images += ",team/two=" + two + ",team/three=" + dir + "/three.tar.gz"
	for name, x := range map[string]struct {
		start func(t *testing.T) *victim
		users bool
	}{
		"root": {func(t *testing.T) *victim {
			if os.Geteuid() != 0 {
				needs.Missing(t, "root")
			}
			if srv, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Namespace}); err != nil {
				needs.Missing(t, err.Error())
			} else {
				require.NoError(t, srv.Close())
			}
			return startVictim(t, sandboxtest.Namespace, "", images)
		}, true},
		"ordinary user": {func(t *testing.T) *victim {
			cmd, env := asNobody(t)
			return runVictim(t, sandboxtest.Namespace, "", cmd, env, images)
		}, false},
		"user namespace": {func(t *testing.T) *victim {
			return runVictim(t, sandboxtest.Namespace, "", inUserNamespace(t, "-r", ""), images)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, ctx := x.start(t).sdk(), t.Context()
			create := func(image string) *sandbox.Sandbox {
				sb, err := c.Create(ctx, &sandbox.CreateOptions{Image: image})
				require.NoError(t, err)
				return sb
			}
			first, second, third := create("team/one:v1"), create("team/two"), create("team/three:latest")
			assert.Equal(t, "tool of one as 1000", printed(t, first, nil, "tool"))
			assert.Equal(t, "tool of two as 1000", printed(t, second, nil, "tool"), "without a shell, without a library")
			assert.Equal(t, "tool of one as 1000", printed(t, third, nil, "tool"))
			assert.Equal(t, "tool of two as 0", printed(t, second, &sandbox.CommandOptions{Sudo: true}, "tool"))
			assert.Regexp(t, "^team/one@sha256:[0-9a-f]{64}$", first.Info().Image)
			assert.Equal(t, "tool of one as 1000", printed(t, create(first.Info().Image), nil, "tool"), "by its digest")
			_, err := second.RunCommand(ctx, "sh", []string{"-c", "true"}, nil)
			assert.ErrorContains(t, err, "executable_not_found", "the machine's programs are not there")

			// Its user, and its other settings of a sandbox.
			assert.Equal(t, "ubuntu /vercel /vercel /bin/sh /vercel/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
				strings.ReplaceAll(printed(t, first, nil, "sh", "-c", "echo $(id -un) $HOME $PWD $SHELL $PATH"), "/run/sandbox/bin:", ""))
			assert.Equal(t, "ok", printed(t, first, nil, "sh", "-c", "cat /dev/null /proc/version /etc/resolv.conf >/dev/null && touch /tmp/x && echo ok"))
			if x.users {
				assert.Equal(t, "tool of one as 0", printed(t, first, nil, "sudo", "tool"), "which the image does not have")
				assert.Equal(t, "tool of two as 0", printed(t, second, nil, "sudo", "tool"))
				assert.Equal(t, "tool of one as 4242", printed(t, first, nil, "sudo", "-u", "other", "tool"))
				assert.Equal(t, "0", printed(t, first, nil, "sh", "-c", "sudo touch /bin/mine && stat -c %u /bin/mine"))
				assert.Equal(t, "4242 640 2\n0 4755 1", printed(t, third, nil, "stat", "-c", "%u %a %h", "/data/its", "/data/special"))
				assert.Equal(t, "bob", printed(t, first, nil, "sh", "-c", "sudo useradd -M bob && sudo -u bob id -un"))
			} else {
				out, err := first.RunCommand(ctx, "sudo", []string{"tool"}, nil)
				require.NoError(t, err)
				said, err := out.CombinedOutput(ctx)
				require.NoError(t, err)
				assert.Contains(t, said, "one user only")
				printed(t, third, &sandbox.CommandOptions{Sudo: true}, "touch", "/bin/mine")
				assert.Equal(t, "1000 640 2\n1000 755 1", printed(t, third, nil, "stat", "-c", "%u %a %h", "/data/its", "/data/special"))
			}
			assert.NoFileExists(t, one+"/bin/mine")
			assert.Equal(t, "one", printed(t, third, nil, "cat", "/data/link"))

			// Stop and resume, snapshot and fork.
			printed(t, first, nil, "sh", "-c", "echo kept > file")
			_, err = first.Stop(ctx, nil)
			require.NoError(t, err)
			assert.Equal(t, "kept", printed(t, first, nil, "cat", "file"))
			_, err = third.Stop(ctx, nil)
			require.NoError(t, err)
			assert.Equal(t, x.users, strings.Contains(printed(t, first, nil, "ls", "/bin"), "mine"))
			assert.Equal(t, !x.users, strings.Contains(printed(t, third, nil, "ls", "/bin"), "mine"))
			snap, err := first.Snapshot(ctx, nil)
			require.NoError(t, err)
			from, err := c.Create(ctx, &sandbox.CreateOptions{Source: sandbox.SnapshotSource{SnapshotID: snap.ID()}})
			require.NoError(t, err)
			assert.Equal(t, "kept\ntool of one as 1000", printed(t, from, nil, "sh", "-c", "cat file; tool"))
			fork, err := c.Fork(ctx, first.Name(), nil)
			require.NoError(t, err)
			assert.Equal(t, "kept\ntool of one as 1000", printed(t, fork, nil, "sh", "-c", "cat file; tool"))
			assert.Equal(t, first.Info().Image, fork.Info().Image)

			_, err = c.Create(ctx, &sandbox.CreateOptions{Image: "team/one:v2"})
			var refused *sandbox.APIError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, []any{404, "not_found", "Image not found."}, []any{refused.Status, refused.Code, refused.Message})
			plain, err := c.Create(ctx, nil)
			require.NoError(t, err)
			assert.NotEmpty(t, printed(t, plain, nil, "sh", "-c", "ls /usr/bin"), "the machine's programs")
		})
	}
}

// namespaceServer starts a server for a test in namespace mode.
func namespaceServer(t *testing.T, opts *sandboxtest.Options) *sandboxtest.Server {
	t.Helper()
	opts.Mode = sandboxtest.Namespace
	probe, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Namespace})
	if err != nil {
		needs.Missing(t, "namespace mode: %v", err)
	}
	require.NoError(t, probe.Close())
	srv, err := sandboxtest.NewServer(opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, srv.Close()) })
	return srv
}

// TestImagesAreKept: sandboxes made from an image keep working, whatever
// happens to the archive; if the directory is gone, that only costs time.
func TestImagesAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	image := dir + "/image"
	rootfs.Make(t, image, "sh", "cat")
	require.NoError(t, os.WriteFile(image+"/version", []byte("1"), 0o644))
	archive := dir + "/image.tar"
	require.NoError(t, os.WriteFile(archive, tarball(t, entriesOf(t, image)...), 0o600))
	state := dir + "/state"
	opts := func(images map[string]string) *sandboxtest.Options {
		return &sandboxtest.Options{Dir: state, Images: images}
	}
	both := map[string]string{"team/packed": archive, "team/tree": image}
	srv := namespaceServer(t, opts(both))
	ctx := t.Context()
	for _, name := range []string{"packed", "tree"} {
		sb, err := srv.Client().Create(ctx, &sandbox.CreateOptions{Name: name, Image: "team/" + name})
		require.NoError(t, err)
		printed(t, sb, nil, "sh", "-c", "echo of "+name+" > file")
	}
	plain, err := srv.Client().Create(ctx, &sandbox.CreateOptions{Name: "plain"})
	require.NoError(t, err)
	printed(t, plain, nil, "sh", "-c", "echo plain > file")
	require.NoError(t, srv.Close())
	look := func(name string) (string, error) {
		sb, err := srv.Client().Get(ctx, name, nil)
		if err != nil {
			return "", err
		}
		done, err := sb.RunCommand(ctx, "cat", []string{"/version", "file"}, nil)
		if err != nil {
			return "", err
		}
		return done.Stdout(ctx)
	}

	parents, err := filepath.Glob(state + "/machines/*/i")
	require.NoError(t, err)
	require.Len(t, parents, 1)
	info, err := os.Stat(parents[0])
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), "programs in it may have the rights of root")

	// A new version of one image under its name, and the other one removed.
	require.NoError(t, os.WriteFile(image+"/version", []byte("2"), 0o644))
	require.NoError(t, os.WriteFile(archive, tarball(t, entriesOf(t, image)...), 0o600))
	srv = namespaceServer(t, opts(map[string]string{"team/packed": archive}))
	out, err := look("packed")
	require.NoError(t, err)
	assert.Equal(t, "1of packed\n", out)
	made, err := srv.Client().Create(ctx, &sandbox.CreateOptions{Image: "team/packed", Ephemeral: true})
	require.NoError(t, err)
	assert.Equal(t, "2", printed(t, made, nil, "cat", "/version"))
	require.NoError(t, made.Delete(ctx, nil))
	_, err = look("tree")
	var refused *sandbox.APIError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, 400, refused.Status)
	assert.Contains(t, refused.Message, "team/tree@sha256:")
	assert.Contains(t, refused.Message, "Start the emulator with the directory in Options.Images again.")
	out, err = look("plain")
	require.NoError(t, err)
	assert.Equal(t, "plain\n", out)
	require.NoError(t, srv.Close())

	// Without the archive, and with the directory again.
	require.NoError(t, os.Remove(archive))
	srv = namespaceServer(t, opts(map[string]string{"other/name": image}))
	out, err = look("tree")
	require.NoError(t, err)
	assert.Equal(t, "2of tree\n", out)
	out, err = look("packed")
	require.NoError(t, err)
	assert.Equal(t, "1of packed\n", out)
	unpacked := func() []string {
		found, err := filepath.Glob(state + "/machines/*/i/*")
		require.NoError(t, err)
		return found
	}
	assert.Len(t, unpacked(), 1, "that of the second version has gone")
	sb, err := srv.Client().Get(ctx, "packed", nil)
	require.NoError(t, err)
	require.NoError(t, sb.Delete(ctx, &sandbox.DeleteOptions{DeleteOrphanSnapshots: true}))
	require.NoError(t, srv.Close())
	srv = namespaceServer(t, opts(nil))
	assert.Empty(t, unpacked(), "nothing needs it any more")
}

// TestHostileImages: archives that try to reach other files are refused, and
// leave nothing behind.
func TestHostileImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim := dir + "/victim"
	require.NoError(t, os.WriteFile(victim, []byte("whole"), 0o600))
	up := strings.Repeat("../", 20)
	fine := entry{name: "bin/tool", content: "x", mode: 0o755}
	whole := gz(t, tarball(t, fine, entry{name: "big", content: strings.Repeat("random", 1000)}))
	huge := tarball(t, fine)
	huge = append(huge[:len(huge)-1024], hugeEntry(t)...)
	deep := strings.Repeat("d/", 400) + "x"
	probe := namespaceServer(t, &sandboxtest.Options{})
	require.NoError(t, probe.Close())
	for name, x := range map[string]struct {
		archive []byte
		says    string
	}{
		"dots":                   {tarball(t, entry{name: up + victim[1:], content: "x"}), "element .."},
		"absolute":               {tarball(t, entry{name: victim, content: "x"}), "absolute"},
		"through a link":         {tarball(t, entry{name: "l", kind: tar.TypeSymlink, link: dir}, entry{name: "l/victim", content: "x"}), "symbolic link"},
		"through dots in a link": {tarball(t, entry{name: "l", kind: tar.TypeSymlink, link: up + dir[1:]}, entry{name: "l/victim", content: "x"}), "symbolic link"},
		"hard link outside":      {tarball(t, entry{name: "h", kind: tar.TypeLink, link: victim}), "absolute"},
		"hard link with dots":    {tarball(t, entry{name: "h", kind: tar.TypeLink, link: up + victim[1:]}), "element .."},
		"hard link to a link":    {tarball(t, entry{name: "l", kind: tar.TypeSymlink, link: victim}, entry{name: "h", kind: tar.TypeLink, link: "l"}), "not a file"},
		"device":                 {tarball(t, entry{name: "bin/disk", kind: tar.TypeBlock}), "type"},
		"fifo":                   {tarball(t, entry{name: "bin/fifo", kind: tar.TypeFifo}), "type"},
		"whiteout":               {tarball(t, fine, entry{name: "etc/.wh.passwd"}), "one layer"},
		"layers":                 {tarball(t, entry{name: "manifest.json", content: "[]"}, entry{name: "layer.tar", content: "x"}), "docker export"},
		"nothing":                {tarball(t), "empty"},
		"too large":              {huge, "bytes"},
		"too deep":               {tarball(t, entry{name: deep, content: "x"}), "deep"},
		"cut":                    {whole[:len(whole)-40], "EOF"},
		"text":                   {[]byte("this is no archive, however long it may be" + strings.Repeat(".", 1000)), "tar"},
		"zstd":                   {append([]byte("\x28\xb5\x2f\xfd"), whole...), "not by gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := t.TempDir()
			require.NoError(t, os.WriteFile(place+"/image.tar", x.archive, 0o600))
			srv, err := sandboxtest.NewServer(&sandboxtest.Options{
				Mode: sandboxtest.Namespace, Dir: place + "/state", Images: map[string]string{"team/bad": place + "/image.tar"},
			})
			if err == nil {
				require.NoError(t, srv.Close())
			}
			require.ErrorContains(t, err, "Options.Images: team/bad")
			assert.ErrorContains(t, err, x.says)
			data, err := os.ReadFile(victim)
			require.NoError(t, err)
			assert.Equal(t, "whole", string(data))
			for _, pattern := range []string{"i", "b"} {
				left, err := filepath.Glob(place + "/state/machines/*/" + pattern + "/*")
				require.NoError(t, err)
				assert.Empty(t, left)
			}
		})
	}
}

// hugeEntry returns the header of a file of one pebibyte.
func hugeEntry(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	require.NoError(t, tar.NewWriter(&buf).WriteHeader(&tar.Header{Name: "huge", Typeflag: tar.TypeReg, Size: 1 << 50, Mode: 0o644}))
	return buf.Bytes()
}

// TestLinksOfAnImage: links that lead out of an image lead nowhere, also when
// the emulator reads an image's files.
func TestLinksOfAnImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := dir + "/secret"
	require.NoError(t, os.WriteFile(secret, []byte("root:planted:0:0::/:/bin/sh\n"), 0o644))
	link := func(image, name, to string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(image+name), 0o755))
		require.NoError(t, os.Symlink(to, image+name))
	}
	image := dir + "/image"
	rootfs.Make(t, image, "sh", "cat")
	up := strings.Repeat("../", 20)
	link(image, "/etc/passwd", secret)
	link(image, "/etc/group", up+secret[1:])
	link(image, "/etc/shadow", "/etc/gshadow")
	link(image, "/etc/ssl/certs/ca-certificates.crt", secret)
	link(image, "/etc/pki", up+dir[1:])
	link(image, "/usr/bin", dir)
	for _, name := range []string{"/run", "/tmp", "/root", "/shared", "/dev", "/proc", "/sys", "/vercel"} {
		if strings.HasPrefix(dir, name+"/") {
			continue // no program is found through /usr/bin, where links lead round in a circle
		}
		link(image, name, dir)
	}
	srv := namespaceServer(t, &sandboxtest.Options{Images: map[string]string{"team/links": image}})
	sb, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{Image: "team/links"})
	require.NoError(t, err)
	assert.NotContains(t, printed(t, sb, nil, "sh", "-c", "cat /etc/passwd /etc/group /etc/shadow /etc/ssl/certs/* 2>/dev/null; echo x > /vercel/x; cat /vercel/x"), "planted")
	printed(t, sb, &sandbox.CommandOptions{Sudo: true}, "sh", "-c", "echo x > /run/x; echo x > /vercel/y")
	left, err := filepath.Glob(dir + "/*")
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{image, secret}, left)

	etc := dir + "/linked-etc"
	rootfs.Make(t, etc, "sh")
	link(etc, "/etc", dir)
	_, err = sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Namespace, Images: map[string]string{"team/etc": etc}})
	assert.ErrorContains(t, err, "/etc of the image is not a directory")
}

// TestImageTrustsTheFirewall: an image without certificates trusts the
// firewall's as the machine's programs do.
func TestImageTrustsTheFirewall(t *testing.T) {
	t.Parallel()
	image := t.TempDir()
	rootfs.Make(t, image, "curl")
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	}))
	t.Cleanup(api.Close)
	srv := namespaceServer(t, &sandboxtest.Options{Names: map[string]string{"api.example.com": api.URL}, Images: map[string]string{"team/curl": image}})
	testkit.Policies(t, srv)
	sb, err := srv.Client().Create(t.Context(), &sandbox.CreateOptions{Image: "team/curl", NetworkPolicy: &sandbox.NetworkPolicy{
		Rules: map[string][]sandbox.PolicyRule{"api.example.com": {{
			Transform: []sandbox.PolicyTransform{{Headers: sandbox.PolicyHeaders{"Authorization": "Bearer secret"}}},
		}}},
	}})
	require.NoError(t, err)
	assert.Equal(t, "Bearer secret", printed(t, sb, nil, "curl", "-sS", "https://api.example.com/"))
	done, err := sb.RunCommand(t.Context(), "curl", []string{"-sS", "https://other.example.com/"}, nil)
	require.NoError(t, err)
	assert.NotZero(t, done.ExitCode)
}

// TestAuthoritiesMadeAnew: the firewall's stays among the trusted ones where a
// sandbox makes the list of them anew, as packages do.
func TestAuthoritiesMadeAnew(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "update-ca-certificates")
	if os.Geteuid() != 0 {
		needs.Missing(t, "root")
	}
	srv := namespaceServer(t, &sandboxtest.Options{})
	sb, err := srv.Client().Create(t.Context(), nil)
	require.NoError(t, err)
	const list = "/etc/ssl/certs/ca-certificates.crt"
	last := strings.TrimSpace(printed(t, sb, nil, "tail", "-n", "3", "/usr/local/share/ca-certificates/vercel-proxy-ca.crt"))
	require.Contains(t, printed(t, sb, nil, "cat", list), last)
	printed(t, sb, nil, "sudo", "sh", "-c", "rm "+list+" && update-ca-certificates 2>&1")
	assert.Contains(t, printed(t, sb, nil, "cat", list), last)
}

// TestNamesOfImages: the names that Options.Images accepts, and those that
// stand for the machine's programs.
func TestNamesOfImages(t *testing.T) {
	t.Parallel()
	for name, images := range map[string]map[string]string{
		"no name":     {"": "/"},
		"a bad name":  {"Team/Tools": "/"},
		"a digest":    {"team/tools@sha256:" + strings.Repeat("a", 64): "/"},
		"twice":       {"team/tools": "/", "team/tools:latest": "/"},
		"no path":     {"team/tools": ""},
		"not there":   {"team/tools": t.TempDir() + "/missing"},
		"folder mode": {"team/tools": t.TempDir()},
	} {
		_, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: sandboxtest.Folder, Images: images})
		assert.ErrorContains(t, err, "Options.Images", name)
	}
	inModes(t, sandboxtest.Options{Images: map[string]string{"team/tools:v1": "/"}}, func(t *testing.T, _ *sandboxtest.Server, c *raw) {
		made := c.create(obj{"image": "team/tools:v1"})
		assert.Equal(t, "ok\n", c.sh(made.Session.ID, "echo ok"))
		c.create(obj{"image": made.Sandbox.Image})
		c.create(obj{"image": "vercel/sandbox/node:24"})
		for _, other := range []string{"team/tools", "team/tools:v2", "team/tools@sha256:" + strings.Repeat("a", 64), "vercel/sandbox/cobol", "registry.example.com/x"} {
			assert.Equal(t, "Image not found.", c.refused("POST", "/v2/sandboxes", obj{"projectId": "prj", "image": other}, 404, "not_found"), other)
		}
	})
}
