// Package scripted has a fake language model that uses the tools of package agent. The
// model writes a program, runs it, sees it fail, fixes it, serves it and shows the URL. Its
// sandbox is stopped halfway. The tests of each adapter use this model, which must get the
// same results through all of them.
package scripted

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Call is a call of a tool that the model requests.
type Call struct {
	Tool string
	Args map[string]any
}

// Model is the scripted model. It is not safe for concurrent use.
type Model struct {
	t       *testing.T
	stop    func() // stops the sandbox halfway, through another client
	port    int
	step    int
	id, url string
	seen    []string
}

const broken = `import os

class Page:
    def __init__(self, name):
        self.name = name

    def text(self):
        return "hello " + self.nam

os.makedirs("site", exist_ok=True)
with open("site/index.html", "w") as f:
    f.write(Page("world").text())
print("written")
`

var (
	commandID = regexp.MustCompile(`command_id: (\S+)`)
	address   = regexp.MustCompile(`https?://\S+`)
)

// Next returns the model's next call, after the result of the previous one. The first
// result is empty. Next returns false when the model is done.
func (m *Model) Next(result string) (Call, bool) {
	if m.step > 0 {
		m.seen = append(m.seen, result)
	}
	m.step++
	switch m.step {
	case 1:
		return Call{"write_file", map[string]any{"path": "page.py", "content": broken}}, true
	case 2:
		return Call{"bash", map[string]any{"command": "python3 page.py", "timeout_seconds": 60}}, true
	case 3:
		assert.Contains(m.t, result, "AttributeError")
		return Call{"read_file", map[string]any{"path": "page.py", "offset": 7, "limit": 2}}, true
	case 4:
		return Call{"edit_file", map[string]any{"path": "page.py", "old_string": "self.nam\n", "new_string": "self.name\n"}}, true
	case 5:
		return Call{"bash", map[string]any{"command": "python3 page.py"}}, true
	case 6:
		assert.Contains(m.t, result, "written")
		m.stop()
		return Call{"start_command", map[string]any{"command": fmt.Sprintf("cd site && exec python3 -m http.server --bind 0.0.0.0 %d", m.port)}}, true
	case 7:
		if found := commandID.FindStringSubmatch(result); assert.NotNil(m.t, found, result) {
			m.id = found[1]
		}
		return Call{"port_url", map[string]any{"port": m.port, "wait_seconds": 60}}, true
	case 8:
		m.url = address.FindString(result)
		return Call{"bash", map[string]any{"command": fmt.Sprintf("python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:%d/\").read())'", m.port)}}, true
	case 9:
		assert.Contains(m.t, result, "hello world")
		return Call{"stop_command", map[string]any{"command_id": m.id}}, true
	case 10:
		return Call{"python", map[string]any{"code": "answer = 6 * 7"}}, true
	case 11:
		return Call{"python", map[string]any{"code": "answer"}}, true
	}
	return Call{}, false
}

// Last returns the model's last message.
func (m *Model) Last() string { return "It is served at " + m.url }

// Transcript returns the results that the model has seen, without the parts that vary
// between runs.
func (m *Model) Transcript() []string {
	list := make([]string, 0, len(m.seen))
	for _, text := range m.seen {
		text = address.ReplaceAllString(text, "URL")
		list = append(list, strings.NewReplacer(m.id, "ID", fmt.Sprint(m.port), "PORT").Replace(text))
	}
	return list
}

// Start returns a model, and its tools for a new sandbox.
func Start(t *testing.T) (*Model, *agent.Toolset) {
	t.Helper()
	needs.Programs(t, "python3", "bash")
	port := needs.Port(t)
	srv, sb := testkit.Start(t, &sandbox.CreateOptions{Ports: []int{port}})
	tools := agent.New(sb, nil)
	t.Cleanup(func() { assert.NoError(t, tools.Close()) })
	return &Model{t: t, port: port, stop: func() { testkit.StopElsewhere(t, srv, sb) }}, tools
}

// Play passes the model's calls to a function, and its results to the model.
func (m *Model) Play(call func(tool string, args json.RawMessage) string) {
	m.t.Helper()
	for next, more := m.Next(""); more; {
		args, err := json.Marshal(next.Args)
		require.NoError(m.t, err)
		next, more = m.Next(call(next.Tool, args))
	}
}

// Directly returns the transcript of a model that calls the tools without an adapter.
func Directly(t *testing.T) []string {
	t.Helper()
	m, tools := Start(t)
	m.Play(func(tool string, args json.RawMessage) string {
		result, err := tools.Call(t.Context(), tool, args)
		assert.NoError(t, err)
		assert.False(t, result.Failed, result.Text)
		return result.Text
	})
	return m.Transcript()
}
