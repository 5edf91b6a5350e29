package sandbox

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
)

// userAgent returns what makes the User-Agent header: the caller's own words,
// the SDK's, and the name of the coding agent that the program was started by,
// which the official tools send as well. Either of the variables that switch
// that off is looked at before every request.
func userAgent(own string) func() string {
	if own != "" {
		own += " "
	}
	sdk := "go-vercel-sandbox/" + Version()
	system := fmt.Sprintf("(%s; %s/%s)", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	plain := own + sdk + " " + system
	return func() string {
		if os.Getenv("VERCEL_TELEMETRY_DISABLED") != "" || os.Getenv("VERCEL_SANDBOX_TELEMETRY_DISABLED") != "" {
			return plain
		}
		if agent := codingAgent(); agent != "" {
			return own + sdk + " agent/" + agent + " " + system
		}
		return plain
	}
}

// codingAgent names the coding agent that the process runs in; it is empty for
// none. It is looked for once.
var codingAgent = sync.OnceValue(func() string {
	return findAgent(os.Getenv, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
})

// agentName is what can stand in the header without meaning more than a name.
var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// agentMarks are variables by which programs that do not set AI_AGENT are known,
// in the order in which they are looked at.
var agentMarks = []struct{ variable, agent string }{
	{"CURSOR_TRACE_ID", "cursor"},
	{"CURSOR_AGENT", "cursor-cli"},
	{"GEMINI_CLI", "gemini"},
	{"CODEX_SANDBOX", "codex"}, {"CODEX_CI", "codex"}, {"CODEX_THREAD_ID", "codex"},
	{"ANTIGRAVITY_AGENT", "antigravity"},
	{"AUGMENT_AGENT", "augment-cli"},
	{"OPENCODE_CLIENT", "opencode"},
	{"CLAUDECODE", "claude"}, {"CLAUDE_CODE", "claude"},
	{"REPL_ID", "replit"},
	{"COPILOT_MODEL", "github-copilot"}, {"COPILOT_ALLOW_ALL", "github-copilot"}, {"COPILOT_GITHUB_TOKEN", "github-copilot"},
}

func findAgent(getenv func(string) string, exists func(path string) bool) string {
	if name := strings.TrimSpace(getenv("AI_AGENT")); name != "" {
		switch {
		case name == "github-copilot-cli":
			return "github-copilot"
		case agentName.MatchString(name):
			return name
		}
		// What can't be a name is left out: statistics must not make a request
		// fail, nor say what the caller did not mean to.
		return ""
	}
	for _, m := range agentMarks {
		switch {
		case getenv(m.variable) == "" && !(m.agent == "cursor-cli" && getenv("CURSOR_EXTENSION_HOST_ROLE") == "agent-exec"):
		case m.agent == "claude" && getenv("CLAUDE_CODE_IS_COWORK") != "":
			return "cowork"
		default:
			return m.agent
		}
	}
	if exists("/opt/.devin") {
		return "devin"
	}
	return ""
}
