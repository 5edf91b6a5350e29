package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// jsModulesEnv names the variable with the node_modules folder of the official SDK.
const jsModulesEnv = "SANDBOX_JS_MODULES"

// officialLives lists the runs of the official SDK: its version and the steps.
var officialLives = []struct {
	version, name string // the version of the package, and its folder in node_modules
	steps         string // the file with the steps in testdata/jsdrive
	runtime       string // the runtime of the sandboxes, or "" if they use an image
	departs       []string
}{
	{"2.9.2", "@vercel/sandbox", "steps.json", "node24", []string{"regions-told", "server's-words", "usage-of-zero"}},
	{"3.5.0", "vercel-sandbox-3", "steps.json", "", []string{"usage-of-zero"}},
	{"3.5.0", "vercel-sandbox-3", "version3.json", "", []string{"drives-are-no-sandbox", "response-rules-told", "usage-of-zero"}},
}

// TestOfficialSDKOnEmulator runs the same steps with a version of the official SDK and with
// this SDK, each with its own emulator, and compares the results.
func TestOfficialSDKOnEmulator(t *testing.T) {
	needs.Programs(t, "node", "git")
	modules := os.Getenv(jsModulesEnv)
	git, tarball := sources(t)
	users := os.Getuid() == 0
	for _, program := range []string{"sudo", "useradd", "groupadd", "usermod", "gpasswd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("without the steps that need users: %v", err)
			users = false
		}
	}
	for _, life := range officialLives {
		t.Run(life.version+"/"+strings.TrimSuffix(life.steps, ".json"), func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(modules, life.name, "package.json"))
			if modules == "" || err != nil {
				needs.Missing(t, "in %s a node_modules folder of testdata/npm, with %s", jsModulesEnv, life.name)
			}
			require.Equal(t, any(life.version), decoded[object](raw)["version"])

			// play runs the steps. It returns the steps, their results, and a normalizer
			// for values that vary between runs.
			play := func(run func(t *testing.T, scenario []byte, url, dir string) []any) (Scenario, []any, *normalizer) {
				srv := sandboxtest.New(t, nil)
				dir := t.TempDir()
				cr := srv.Credentials()
				vars := map[string]string{
					"TOKEN": cr.Token, "TEAM": cr.TeamID, "PROJECT": cr.ProjectID, "GIT": git, "TARBALL": tarball, "DIR": dir,
				}
				steps := driveSteps(t, life.steps, life.runtime, users && srv.Mode() == sandboxtest.Namespace, vars)
				return decoded[Scenario](steps), run(t, steps, srv.URL, dir), newNormalizer(dir, srv.URL)
			}
			var noted []string // the rules that the driver of this SDK has used
			_, js, jsVarying := play(func(t *testing.T, scenario []byte, url, dir string) []any {
				return runNode(t, modules, life.name, scenario, url, dir)
			})
			s, got, gotVarying := play(func(t *testing.T, scenario []byte, url, _ string) []any {
				s := decoded[Scenario](scenario)
				hc := &http.Client{Transport: &http.Transport{}}
				defer hc.CloseIdleConnections()
				d := newRealDriver(&s, url, hc)
				results := plain(d.run(t.Context())).([]any)
				noted = d.rules
				return results
			})
			require.Equal(t, len(js), len(got))
			require.Equal(t, len(s.Steps), len(js))
			departed := reconcileSteps(t, s, js, got, noted)
			var expected []string
			for _, rule := range life.departs {
				if rule != "usage-of-zero" || !realistic() { // a realistic emulator responds to a stop before it knows the usage
					expected = append(expected, rule)
				}
			}
			assert.Equal(t, expected, departed, "the rules that the steps must use")
			compareSteps(t, jsVarying.steps(js), gotVarying.steps(withoutNotes(got).([]any)))
		})
	}
}

// reconcileSteps applies the rules about intended differences to the official SDK's results.
// It logs each step with such a difference, and returns the names of the used rules.
func reconcileSteps(t *testing.T, s Scenario, js, got []any, noted []string) []string {
	departed := map[string]bool{}
	for i := range js {
		x := &ruleApplier{played: &Played{scenario: &s, Rules: noted}, step: &s.Steps[i], used: slices.Clone(noted)}
		x.result(js[i].(object), got[i].(object))
		x.used = allowVersions(x.used, js[i], got[i])
		for _, name := range x.used {
			departed[name] = true
			t.Logf("step %d departs: %s", i+1, name)
		}
	}
	return slices.Sorted(maps.Keys(departed))
}

// usage lists the members that are 0 in JavaScript and absent in this SDK.
var usage = []string{
	"totalEgressBytes", "totalIngressBytes", "totalDurationMs", "totalActiveCpuDurationMs", "duration", "activeCpuDurationMs", "activeCpuUsageMs", "networkTransfer",
}

// allowVersions copies values from g to w that older versions of the official SDK lack. It
// appends the names of these differences to used.
func allowVersions(used []string, w, g any) []string {
	if list, ok := w.([]any); ok {
		other, _ := g.([]any)
		for i := range min(len(list), len(other)) {
			used = allowVersions(used, list[i], other[i])
		}
	}
	want, _ := w.(object)
	got, ok := g.(object)
	if !ok {
		return used
	}
	for k := range want {
		used = allowVersions(used, want[k], got[k])
	}
	// The messages of version 2.9.2 lack the server's message.
	if said, ok := want["message"].(string); ok && want["kind"] == "APIError" && !strings.Contains(said, ":") && strings.HasPrefix(fmt.Sprint(got["message"]), said+": ") {
		want["message"], used = got["message"], append(used, "server's-words")
	}
	// In version 2.9.2, the snapshot of a stop lacks its regions.
	if want["region"] != nil && want["regions"] == nil && differs("", []any{want["region"]}, got["regions"]) == "" {
		want["regions"], used = got["regions"], append(used, "regions-told")
	}
	// In JavaScript, a domain with response rules is an allowed domain without rules.
	if allow, ok := got["allow"].(object); ok {
		if read, answered := withoutResponses(allow); answered && differs("", want["allow"], read) == "" {
			want["allow"], used = got["allow"], append(used, "response-rules-told")
		}
	}
	for _, k := range usage {
		zero := want[k] == 0.0 || differs("", want[k], object{"ingress": 0.0, "egress": 0.0}) == ""
		if _, has := got[k]; zero && !has {
			delete(want, k)
			used = append(used, "usage-of-zero")
		}
	}
	return used
}

// withoutResponses returns the domains of a policy in the form of a client that does not know
// response rules. It also reports whether there are such rules.
func withoutResponses(allow object) (read any, answered bool) {
	domains, byDomain, ruled := []any{}, object{}, false
	for _, domain := range sortedKeys(allow) {
		rules, _ := allow[domain].([]any)
		rest := slices.DeleteFunc(slices.Clone(rules), func(r any) bool { return r.(object)["response"] != nil })
		answered = answered || len(rest) < len(rules)
		ruled = ruled || len(rest) > 0
		domains, byDomain[domain] = append(domains, domain), append([]any{}, rest...)
	}
	if ruled {
		return byDomain, answered
	}
	return domains, answered
}

// realistic reports whether the emulators are as slow as the service. Then the state after a
// stop varies.
func realistic() bool { return os.Getenv("SANDBOX_TEST_REALISTIC") == "1" }

// compareSteps compares the results of the official SDK with those of this SDK.
func compareSteps(t *testing.T, js, got []any) {
	ran := 0
	for i := range js {
		step, _ := js[i].(object)
		for _, r := range []any{js[i], got[i]} {
			value, _ := r.(object)["value"].(object)
			if realistic() && value["status"] == "snapshotting" { // the state depends on the time when the response to the stop arrives
				value["status"] = "stopping"
			}
			if step["op"] == "fs.readdir" { // find lists a directory in any order
				sortByName(r.(object)["value"])
			}
		}
		assert.Empty(t, differs("", js[i], got[i]), "step %d", i+1)
		if _, ok := step["value"]; ok {
			ran++
		}
		if testing.Verbose() {
			t.Logf("%d %s", i+1, show(js[i]))
		}
	}
	assert.Greater(t, ran, len(js)/2, "most steps must succeed")
}

// driveSteps reads the steps. On a machine whose sandboxes have no users, it omits the steps
// that need users, and logs them. If runtime is set, the steps create sandboxes with it, except
// from a snapshot.
func driveSteps(t *testing.T, name, runtime string, users bool, vars map[string]string) []byte {
	file := decoded[object](Substitute(must(os.ReadFile(filepath.Join("../../../testdata/jsdrive", name))), vars))
	file["steps"] = mapped(file["steps"], func(_ string, v any) (any, bool) {
		step, _ := v.(object)
		if step["needs"] != nil && !users {
			t.Logf("omitted, because %s is missing: %s", step["needs"], show(step))
			return nil, false
		}
		args, _ := step["args"].(object)
		if runtime != "" && (step["op"] == "create" || step["op"] == "getOrCreate") && !strings.Contains(show(args["source"]), `"snapshot"`) {
			args["runtime"] = runtime
		}
		return v, true
	})
	return must(json.Marshal(file))
}

// sources returns the URLs of a git repository and a tarball from which the steps create
// sandboxes. The sandboxes can reach these URLs.
func sources(t *testing.T) (git, tarball string) {
	work, root := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(work, "README"), []byte("from git\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(work, "hello.txt"), []byte("hello\n"), 0o644))
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", "--separate-git-dir", filepath.Join(root, "repo")}, {"add", "."},
		{"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first"}, {"update-server-info"},
		{"archive", "--format=tar.gz", "-o", filepath.Join(root, "a.tgz"), "HEAD", "hello.txt"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = work
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	srv := httptest.NewServer(http.FileServer(http.Dir(root)))
	t.Cleanup(srv.Close)
	url := strings.Replace(srv.URL, "127.0.0.1", "host.internal", 1)
	return url + "/repo", url + "/a.tgz"
}

// runNode runs the steps with the official SDK, which is in the folder name of modules.
func runNode(t *testing.T, modules, name string, scenario []byte, url, dir string) []any {
	recorder := must(filepath.Abs("../../../testdata/conformance/record"))
	file, out := filepath.Join(t.TempDir(), "steps.json"), filepath.Join(t.TempDir(), "out.json")
	require.NoError(t, os.WriteFile(file, scenario, 0o600))
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(recorder, "driver.mjs"))
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "WIRE_NODE_MODULES=" + modules, "WIRE_PACKAGE=" + name, "WIRE_API=" + url, "WIRE_PORT=1",
		"WIRE_SCENARIO=" + file, "WIRE_OUT=" + out,
	}
	printed, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", printed)
	got := decoded[struct{ Results, Stray []any }](must(os.ReadFile(out)))
	assert.Empty(t, got.Stray, "uncaught errors of the official SDK")
	return got.Results
}

// normalizer replaces values that vary between runs. It replaces IDs by numbers, in the order
// in which they occur, and times, durations, inode numbers and addresses by their kind.
type normalizer struct {
	replace *strings.Replacer
	ids     map[string]string
}

func newNormalizer(dir, url string) *normalizer {
	host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/api")
	return &normalizer{strings.NewReplacer(dir, "DIR", host, "HOST"), map[string]string{}}
}

var (
	idText    = regexp.MustCompile(`\b(sess|session|snap|snapshot|cmd|sbx|int|drv)_[A-Za-z0-9]+`)
	isoMoment = regexp.MustCompile(`^\d{4}-\d\d-\d\dT[\d:.]+Z$`)
	port      = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+`)
)

// varying lists the fields whose values vary between runs.
var varying = map[string]bool{
	"durationMs": true, "duration": true, "startedAt": true, "dev": true, "ino": true, "blocks": true, "token": true,
	"sizeBytes": true, "activeCpuDurationMs": true, "totalActiveCpuDurationMs": true, "totalDurationMs": true, "nlink": true,
	"atimeMs": true, "mtimeMs": true, "ctimeMs": true, "birthtimeMs": true, "atime": true, "mtime": true, "ctime": true, "birthtime": true,
}

func (n *normalizer) steps(results []any) []any {
	vary := func(key string, v any) (any, bool) {
		if varying[key] && v != nil {
			return fmt.Sprintf("%T that varies", v), true
		}
		text, isText := v.(string)
		if ms, _ := v.(float64); ms > 1e12 || isText && isoMoment.MatchString(text) {
			return "a moment", true
		}
		if !isText {
			return v, true
		}
		text = port.ReplaceAllString(n.replace.Replace(text), "HOST")
		return idText.ReplaceAllStringFunc(text, func(id string) string {
			if _, ok := n.ids[id]; !ok {
				n.ids[id] = fmt.Sprintf("id %d", len(n.ids)+1)
			}
			return n.ids[id]
		}), true
	}
	return mapped(results, vary).([]any)
}
