package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFindAgent(t *testing.T) {
	for _, tc := range []struct{ name, env, want string }{
		{"none", "", ""},
		{"AI_AGENT", "AI_AGENT=my-agent_1.0", "my-agent_1.0"},
		{"with a version", "AI_AGENT=my-agent@1.2", "my-agent@1.2"},
		{"a version alone", "AI_AGENT=@1.2", "@1.2"},
		{"spaces around", "AI_AGENT=  robot ", "robot"},
		{"an older name", "AI_AGENT=github-copilot-cli", "github-copilot"},
		{"AI_AGENT before a known variable", "AI_AGENT=robot;CLAUDECODE=1", "robot"},
		{"a line break", "AI_AGENT=line\nbreak", ""},
		{"a phrase", "AI_AGENT=a b/1 (c) other/2", "a b/1 (c) other/2"},
		{"beyond ASCII", "AI_AGENT=агент", ""},
		{"long", "AI_AGENT=" + strings.Repeat("a", 65), ""},
		{"empty", "AI_AGENT= ;CODEX_CI=1", "codex"},
		{"known", "CLAUDE_CODE=1", "claude"},
		{"by two variables", "CLAUDECODE=1;CLAUDE_CODE_IS_COWORK=1", "cowork"},
		{"the second variable beside another agent", "GEMINI_CLI=1;CLAUDE_CODE_IS_COWORK=1", "gemini"},
		{"the second variable alone", "CLAUDE_CODE_IS_COWORK=1", ""},
		{"by a value", "CURSOR_EXTENSION_HOST_ROLE=agent-exec", "cursor-cli"},
		{"another value", "CURSOR_EXTENSION_HOST_ROLE=user", ""},
		{"the first of two", "REPL_ID=1;GEMINI_CLI=1", "gemini"},
		{"by a file", "FILE=/opt/.devin", "devin"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := map[string]string{}
			for pair := range strings.SplitSeq(tc.env, ";") {
				k, v, _ := strings.Cut(pair, "=")
				env[k] = v
			}
			got := findAgent(func(k string) string { return env[k] }, func(path string) bool { return env["FILE"] == path })
			assert.Equal(t, tc.want, got)
		})
	}
}
