package agent_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestPageShowsExamples: docs/agents.md has the same functions as the examples, which are
// tested.
func TestPageShowsExamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/agents.md")
	require.NoError(t, err)
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	for _, begin := range []string{"var known = ", "func policy(", "func converse("} {
		_, text, found := strings.Cut(string(source), "\n"+begin)
		require.True(t, found, begin)
		text, _, _ = strings.Cut(text, "\n\n")
		assert.Contains(t, string(page), "\n"+begin+text+"\n", "the page differs from example_test.go")
	}
}

// dangerousVariables are variables that make programs run other code or other programs.
var dangerousVariables = []string{
	"BASH_ENV", "ENV", "BASH_FUNC_make%%", "BASH_FUNC_go%%", "BASHOPTS", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "IFS", "CDPATH", "SHELL", "HOME", "XDG_CONFIG_HOME",
	"PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GCONV_PATH", "LOCPATH", "TMPDIR", "TERMINFO",
	"MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS", "MAKEFILES", "MAKE", "CC", "CXX", "LDFLAGS", "CFLAGS", "CMAKE_TOOLCHAIN_FILE", "PKG_CONFIG",
	"GOFLAGS", "GOENV", "GOROOT", "GOPATH", "GOTOOLDIR", "GOTOOLCHAIN", "GOPROXY", "GOVCS", "GOPACKAGESDRIVER", "CGO_CFLAGS", "CGO_LDFLAGS",
	"GIT_SSH", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_ASKPASS", "GIT_PROXY_COMMAND",
	"GIT_CONFIG_GLOBAL", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", "GIT_DIR", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "SSH_ASKPASS", "HGRCPATH",
	"NODE_OPTIONS", "NODE_PATH", "npm_config_script_shell", "npm_config_node_options", "NPM_CONFIG_USERCONFIG", "PYTHONSTARTUP", "PYTHONPATH", "PYTHONHOME", "PYTHONINSPECT",
	"PYTHONBREAKPOINT", "PYTHONWARNINGS", "PIP_INDEX_URL", "PERL5OPT", "PERL5LIB", "PERL5DB", "RUBYOPT", "RUBYLIB", "PHP_INI_SCAN_DIR", "LUA_INIT", "R_PROFILE", "ERL_FLAGS",
	"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "MAVEN_OPTS", "GRADLE_OPTS", "DOTNET_STARTUP_HOOKS", "CORECLR_PROFILER_PATH",
	"RUSTC_WRAPPER", "RUSTFLAGS", "CARGO_HOME", "EDITOR", "VISUAL", "PAGER", "MANPAGER", "LESSOPEN", "LESSCLOSE", "BROWSER", "HTTP_PROXY", "HTTPS_PROXY", "ANYTHING",
}

// TestDocumentedPolicy tests the policy of docs/agents.md with each argument of each tool, and
// with each dangerous variable. The policy refuses what it does not know.
func TestDocumentedPolicy(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.SharedStart(t, nil)
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	asked, allowed := 0, 0
	tools := agent.ForProject(srv.Client(), &agent.Options{Artifacts: root, Limits: agent.Limits{CallsPerMinute: -1}, Before: func(ctx context.Context, call agent.Call) error {
		asked++
		if policy(ctx, call) == nil {
			allowed++
		}
		return agent.Refuse("judged only")
	}})
	defer tools.Close()
	judge := func(tool string, a args) bool {
		t.Helper()
		text, err := json.Marshal(a)
		require.NoError(t, err)
		askedBefore, allowedBefore := asked, allowed
		result, err := tools.Call(t.Context(), tool, text)
		require.NoError(t, err)
		require.Equal(t, askedBefore+1, asked, "%s %s is not judged: %s", tool, text, result.Text)
		return allowed > allowedBefore
	}

	base := map[string]args{ // what the policy allows
		"bash": {"command": "make test"}, "start_command": {"command": "make test"},
		"write_file": {"path": "/vercel/docs/a", "content": "x"}, "edit_file": {"path": "/vercel/docs/a"},
	}
	harmless := map[string][]string{ // arguments that are irrelevant to the policy
		"bash": {"timeout_seconds", "sandbox"}, "start_command": {"sandbox"}, "write_file": {"content", "executable", "sandbox"},
		"edit_file": {"old_string", "new_string", "replace_all", "sandbox"},
	}
	for _, tool := range tools.Tools() {
		var schema struct {
			Properties map[string]struct {
				Type  string
				Items struct{ Type string }
			}
			Required []string
		}
		require.NoError(t, json.Unmarshal(tool.InputSchema, &schema))
		value := func(name string) any {
			switch typ := schema.Properties[name].Type; {
			case name == "sandbox":
				return sb.Name()
			case name == "path" || name == "cwd":
				return "/vercel/other"
			case typ == "integer", typ == "number":
				return 3000
			case typ == "boolean":
				return true
			case typ == "object":
				return args{"A": "b"}
			case typ == "array":
				return []int{3000}
			}
			return "other"
		}
		newArgs := func() args {
			a := args{}
			for _, name := range schema.Required {
				a[name] = value(name)
			}
			maps.Copy(a, base[tool.Name])
			return a
		}
		assert.Equal(t, tool.ReadOnly || base[tool.Name] != nil, judge(tool.Name, newArgs()), tool.Name)
		for name := range schema.Properties {
			a := newArgs()
			a[name] = value(name)
			want := tool.ReadOnly
			for _, known := range harmless[tool.Name] {
				want = want || known == name
			}
			assert.Equal(t, want, judge(tool.Name, a), "%s with another %s", tool.Name, name)
		}
	}
	for _, name := range dangerousVariables {
		for _, tool := range []string{"bash", "start_command"} {
			for _, value := range []string{"x", ""} {
				assert.False(t, judge(tool, args{"sandbox": sb.Name(), "command": "make test", "env": args{name: value}}), "%s with %s=%q", tool, name, value)
			}
		}
	}
	assert.True(t, judge("bash", args{"sandbox": sb.Name(), "command": "make test", "env": args{}}), "an empty object is the same as no variables")
}

// TestPolicyAttacks makes calls that resemble those that the policy of docs/agents.md allows.
// Each would create a file.
func TestPolicyAttacks(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv, sb := testkit.Start(t, nil) // not in folder mode, for absolute paths
	d := toolsFor(t, srv, sb, &agent.Options{Before: policy})
	require.NoError(t, d.sb.FS().MkdirAll(t.Context(), "evil", 0o755))
	require.NoError(t, d.sb.FS().WriteFile(t.Context(), "evil/Makefile", []byte("test:\n\ttouch /vercel/made\n"), 0o644))
	require.NoError(t, d.sb.FS().WriteFile(t.Context(), "evil/make", []byte("#!/bin/sh\ntouch /vercel/made\n"), 0o755))
	for _, c := range [][2]string{
		{"bash", `{"command":"make test","env":{"BASH_ENV":"$(touch /vercel/made)"}}`},
		{"bash", `{"command":"make test","env":{"MAKEFLAGS":"--eval=$(shell touch /vercel/made)"}}`},
		{"start_command", `{"command":"make test","env":{"BASH_ENV":"$(touch /vercel/made)"}}`},
		{"bash", `{"command":"make test","env":{"BASH_FUNC_make%%":"() { touch /vercel/made; }"}}`},
		{"bash", `{"command":"make test","env":{"PATH":"/vercel/evil:/usr/bin:/bin"}}`},
		{"bash", `{"command":"make test","cwd":"evil"}`},
		{"bash", `{"command":"touch /vercel/made"}`},
		{"bash", `{"command":"make test\ntouch /vercel/made"}`},
		{"bash", `{"command":"make test","command":"touch /vercel/made"}`},
		{"bash", `{"command":"make test","Command":"touch /vercel/made"}`},
		{"start_command", `{"command":"\u0074ouch /vercel/made"}`},
		{"python", `{"code":"open('/vercel/made', 'w')"}`},
		{"write_file", `{"path":"/vercel/made","content":"x"}`},
		{"write_file", `{"path":"docs/../made","content":"x"}`},
		{"write_file", `{"path":"/vercel/docs/../made","content":"x"}`},
		{"write_file", `{"path":"/vercel/docs/","path":"/vercel/made","content":"x"}`},
		{"write_file", `{"path":"/proc/self/root/vercel/made","content":"x"}`},
		{"edit_file", `{"path":"/proc/1/task/1/root/vercel/made","old_string":"","new_string":"x"}`},
	} {
		result, err := d.Call(t.Context(), c[0], json.RawMessage(c[1]))
		require.NoError(t, err)
		assert.True(t, result.Failed, "%s %s: %s", c[0], c[1], result.Text)
	}
	_, err := d.sb.FS().Stat(t.Context(), "/vercel/made")
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.Contains(t, d.ok("bash", args{"command": "make test"}), "Exit code")
	d.ok("write_file", args{"path": "docs/page.md", "content": "x"})
}
