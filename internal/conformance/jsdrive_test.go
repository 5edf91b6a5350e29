package conformance

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// jsModulesEnv names the node_modules folder that holds the official SDK.
const jsModulesEnv = "SANDBOX_JS_MODULES"

// TestOfficialSDKOnEmulator takes the same steps with the official SDK and with
// this one, each on an emulator of its own, and compares what they report.
func TestOfficialSDKOnEmulator(t *testing.T) {
	modules := os.Getenv(jsModulesEnv)
	_, nodeErr := exec.LookPath("node")
	if _, err := os.Stat(filepath.Join(modules, "@vercel", "sandbox")); modules == "" || err != nil || nodeErr != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("node is needed, and %s has to name a node_modules folder with @vercel/sandbox", jsModulesEnv)
		}
		t.Skipf("needs node and, in %s, a node_modules folder with @vercel/sandbox", jsModulesEnv)
	}
	git, tarball := sources(t)

	play := func(run func(t *testing.T, scenario []byte, url, dir string) []any) ([]any, sandboxtest.Mode) {
		srv := sandboxtest.New(t, nil)
		dir := t.TempDir()
		cr := srv.Credentials()
		vars := map[string]string{
			"TOKEN": cr.Token, "TEAM": cr.TeamID, "PROJECT": cr.ProjectID, "GIT": git, "TARBALL": tarball, "DIR": dir,
		}
		results := run(t, driveSteps(t, srv.Mode(), vars), srv.URL, dir)
		normalize := newNormalizer(dir, srv.URL)
		out := make([]any, len(results))
		for i := range results {
			out[i] = normalize.value("", results[i])
		}
		return out, srv.Mode()
	}
	modules = mirroredModules(t, modules)
	js, _ := play(func(t *testing.T, scenario []byte, url, dir string) []any {
		return runNode(t, modules, scenario, url, dir)
	})
	for i := range js {
		withoutIdleTransfer(js[i])
	}
	got, mode := play(func(t *testing.T, scenario []byte, url, _ string) []any {
		var s Scenario
		require.NoError(t, json.Unmarshal(scenario, &s))
		hc := &http.Client{Transport: &http.Transport{}}
		defer hc.CloseIdleConnections()
		results, _ := plain(newRealDriver(&s, url, hc).run(t.Context())).([]any)
		return withoutNotes(results).([]any)
	})
	t.Logf("%d steps in %s mode", len(js), mode)
	require.Len(t, got, len(js))
	for i := range js {
		for _, r := range []any{js[i], got[i]} {
			if m, _ := r.(map[string]any); m["op"] == "fs.readdir" {
				sortByName(m["value"]) // find has an order of its own
			}
		}
		if d := differs("", js[i], got[i]); d != "" {
			t.Errorf("step %d: %s", i+1, d)
		}
	}
	if testing.Verbose() {
		for i, r := range js {
			t.Logf("%d %s", i+1, show(r))
		}
	}
	ran := 0
	for _, r := range js {
		if _, ok := r.(map[string]any)["value"]; ok {
			ran++
		}
	}
	assert.Greater(t, ran, len(js)/2, "most of the steps succeed")
}

// mirroredModules gives a node_modules folder whose @vercel/sandbox is of the
// version that this module mirrors, which is beside an older one in modules.
func mirroredModules(t *testing.T, modules string) string {
	mirrored := filepath.Join(modules, "vercel-sandbox-3")
	if _, err := os.Stat(mirrored); err != nil {
		return modules
	}
	dir := filepath.Join(t.TempDir(), "node_modules")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "@vercel"), 0o755))
	require.NoError(t, os.Symlink(mirrored, filepath.Join(dir, "@vercel", "sandbox")))
	return dir
}

// withoutIdleTransfer drops the transfer of sessions that have transferred
// nothing, which SessionInfo does not tell from one that is not known yet.
func withoutIdleTransfer(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			withoutIdleTransfer(item)
		}
	case map[string]any:
		if t, ok := v["networkTransfer"].(map[string]any); ok && t["ingress"] == 0.0 && t["egress"] == 0.0 {
			delete(v, "networkTransfer")
		}
		for _, item := range v {
			withoutIdleTransfer(item)
		}
	}
}

// driveSteps reads the steps, without those that this machine has no users for.
func driveSteps(t *testing.T, mode sandboxtest.Mode, vars map[string]string) []byte {
	raw, err := os.ReadFile("../../testdata/jsdrive/steps.json")
	require.NoError(t, err)
	var file struct {
		Name        string            `json:"name"`
		Credentials json.RawMessage   `json:"credentials"`
		Steps       []json.RawMessage `json:"steps"`
	}
	require.NoError(t, json.Unmarshal(Substitute(raw, vars), &file))
	users := mode == sandboxtest.Namespace && os.Getuid() == 0
	for _, program := range []string{"sudo", "useradd", "groupadd", "usermod", "gpasswd"} {
		if _, err := exec.LookPath(program); err != nil {
			users = false
		}
	}
	kept := file.Steps[:0]
	for _, s := range file.Steps {
		var needs struct {
			Needs string `json:"needs"`
		}
		require.NoError(t, json.Unmarshal(s, &needs))
		if needs.Needs == "" || users {
			kept = append(kept, s)
		}
	}
	file.Steps = kept
	data, err := json.Marshal(file)
	require.NoError(t, err)
	return data
}

// sources makes what sandboxes are created from: a git repository and a
// tarball behind an address.
func sources(t *testing.T) (git, tarball string) {
	repo := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(repo, "README"), []byte("from git\n"), 0o644))
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first"},
		{"update-server-info"},
	} {
		out, err := exec.Command("git", append([]string{"-C", repo}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	var archive bytes.Buffer
	zw := gzip.NewWriter(&archive)
	tw := tar.NewWriter(zw)
	require.NoError(t, tw.WriteHeader(&tar.Header{Name: "hello.txt", Mode: 0o644, Size: 6}))
	_, err := tw.Write([]byte("hello\n"))
	require.NoError(t, err)
	require.NoError(t, tw.Close())
	require.NoError(t, zw.Close())
	mux := http.NewServeMux()
	mux.Handle("/repo/", http.StripPrefix("/repo/", http.FileServer(http.Dir(filepath.Join(repo, ".git")))))
	mux.HandleFunc("/a.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive.Bytes()) })
	srv := httptest.NewUnstartedServer(mux)
	// A sandbox with a network of its own does not reach this machine's
	// loopback.
	l, err := net.Listen("tcp", net.JoinHostPort(hostAddress(t), "0"))
	require.NoError(t, err)
	require.NoError(t, srv.Listener.Close())
	srv.Listener = l
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL + "/repo", srv.URL + "/a.tgz"
}

// hostAddress is an address of this machine beside the loopback, if it has one.
func hostAddress(t *testing.T) string {
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	return "127.0.0.1"
}

// runNode takes the steps with the official SDK.
func runNode(t *testing.T, modules string, scenario []byte, url, dir string) []any {
	recorder, err := filepath.Abs("../../testdata/conformance/record")
	require.NoError(t, err)
	file, out := filepath.Join(t.TempDir(), "steps.json"), filepath.Join(t.TempDir(), "out.json")
	require.NoError(t, os.WriteFile(file, scenario, 0o600))
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(recorder, "driver.mjs"))
	cmd.Dir = dir
	name := "@vercel/sandbox"
	if _, err := os.Stat(filepath.Join(modules, "vercel-sandbox-3")); err == nil {
		name = "vercel-sandbox-3" // a folder with both versions
	}
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "WIRE_NODE_MODULES=" + modules, "WIRE_PACKAGE=" + name, "WIRE_API=" + url, "WIRE_PORT=1",
		"WIRE_SCENARIO=" + file, "WIRE_OUT=" + out,
	}
	printed, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", printed)
	raw, err := os.ReadFile(out)
	require.NoError(t, err)
	var got struct {
		Results []any `json:"results"`
		Stray   []any `json:"stray"`
	}
	require.NoError(t, json.Unmarshal(raw, &got))
	assert.Empty(t, got.Stray, "errors that escaped the official SDK")
	return got.Results
}

// normalizer replaces what is different each time: IDs by their order, moments,
// lengths of time, inode numbers and addresses by what they are.
type normalizer struct {
	replace *strings.Replacer
	ids     map[string]string
}

func newNormalizer(dir, url string) *normalizer {
	host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/api")
	return &normalizer{strings.NewReplacer(dir, "DIR", host, "HOST"), map[string]string{}}
}

var (
	idText    = regexp.MustCompile(`\b(sess|session|snap|snapshot|cmd|sbx|int)_[A-Za-z0-9]+`)
	isoMoment = regexp.MustCompile(`^\d{4}-\d\d-\d\dT[\d:.]+Z$`)
	port      = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+`)
)

// varying are fields whose values differ each time.
var varying = map[string]bool{
	"durationMs": true, "duration": true, "startedAt": true, "dev": true, "ino": true, "blocks": true, "token": true,
	"sizeBytes": true, "activeCpuDurationMs": true, "totalActiveCpuDurationMs": true, "totalDurationMs": true, "nlink": true,
	"atimeMs": true, "mtimeMs": true, "ctimeMs": true, "birthtimeMs": true, "atime": true, "mtime": true, "ctime": true, "birthtime": true,
}

func (n *normalizer) value(key string, v any) any {
	if varying[key] && v != nil {
		return "varies"
	}
	switch v := v.(type) {
	case string:
		if isoMoment.MatchString(v) {
			return "a moment"
		}
		v = port.ReplaceAllString(n.replace.Replace(v), "HOST")
		return idText.ReplaceAllStringFunc(v, func(id string) string {
			if _, ok := n.ids[id]; !ok {
				n.ids[id] = fmt.Sprintf("id %d", len(n.ids)+1)
			}
			return n.ids[id]
		})
	case float64:
		if v > 1e12 {
			return "a moment"
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = n.value("", v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for _, k := range sortedKeys(v) {
			out[k] = n.value(k, v[k])
		}
		delete(out, "seen")
		return out
	default:
		return v
	}
}
