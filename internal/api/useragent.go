package api

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
)

// UserAgent returns a function that returns the User-Agent header: the caller's text, the
// SDK's name, and the name of the coding agent that started the program. The official tools
// send the agent too. The variables that disable it are checked before every request.
func UserAgent(own, version string) func() string {
	if own != "" {
		own += " "
	}
	sdk := "go-vercel-sandbox/" + version
	system := fmt.Sprintf("(%s; %s/%s)", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	plain := own + sdk + " " + system
	return func() string {
		if os.Getenv("VERCEL_TELEMETRY_DISABLED") != "" || os.Getenv("VERCEL_SANDBOX_TELEMETRY_DISABLED") != "" {
			return plain
		}
		if agent := CodingAgent(); agent != "" {
			return own + sdk + " agent/" + agent + " " + system
		}
		return plain
	}
}

// CodingAgent returns the name of the coding agent that the process runs in, or
// "". It checks the environment once.
var CodingAgent = sync.OnceValue(func() string {
	return findAgent(os.Getenv, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
})

// isAgentName reports whether a name is valid in a header.
func isAgentName(name string) bool {
	return name != "" && len(name) <= 64 && strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// agentMarks are variables that identify agents that do not set AI_AGENT, in
// order of precedence.
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
		case isAgentName(name):
			return name
		}
		// Anything else is omitted: statistics must not make a request fail.
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
