package session_test

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/needs"
)

// dom is as much of a browser as the page's script needs to show events.
const dom = `
class Node_ {
  constructor() { this.children = []; this.style = {}; this.classList = { remove() {} }; this.text = ""; this.parentNode = null }
  get textContent() { return this.text + this.children.map((c) => c.textContent).join("") }
  set textContent(t) { this.text = t; this.children = [] }
  get firstChild() { return this.children[0] }
  get isConnected() { return this.root || !!this.parentNode?.isConnected }
  append(...all) { for (const c of all) { c.parentNode = this; this.children.push(c) } }
  remove() { const i = this.parentNode.children.indexOf(this); this.parentNode.children.splice(i, 1); this.parentNode = null }
  replaceChildren(...all) { this.children = []; this.append(...all) }
  count() { return 1 + this.children.reduce((n, c) => n + c.count(), 0) }
}
const elements = {}
globalThis.document = {
  createElement: () => new Node_(),
  getElementById: (id) => { if (!elements[id]) { elements[id] = new Node_(); elements[id].root = true }; return elements[id] },
}
globalThis.window = globalThis
globalThis.location = { hash: "" }
globalThis.localStorage = { getItem: () => null, setItem() {} }
globalThis.ResizeObserver = class { observe() {} }
globalThis.Option = Node_
globalThis.setInterval = () => {}
globalThis.fetch = () => new Promise(() => {})
`

// endless shows what a program has written that does not stop, in both streams,
// and then its last words.
const endless = `
const log = document.getElementById("log")
show({ type: "command_start", id: "c", command: "yes" })
for (let i = 0; i < 60000; i++) show({ type: "command_output", id: "c", stream: i % 7 ? "stdout" : "stderr", data: "\x1b[3" + i % 8 + "my\n" })
if (log.count() > 2 * most.pieces + 100) throw new Error(log.count() + " elements")
for (let i = 0; i < 100; i++) show({ type: "command_output", id: "c", stream: "stdout", data: "z".repeat(65536) })
if (log.textContent.length > most.chars + 65536) throw new Error(log.textContent.length + " characters")
show({ type: "command_output", id: "c", stream: "stdout", data: "\x1b[" + "1".repeat(100000) })
show({ type: "command_output", id: "c", stream: "stdout", data: "the end" })
if (!log.textContent.endsWith("zthe end")) throw new Error("the end is not shown: " + log.textContent.slice(-50))
console.log("shown")
process.exit(0)
`

// TestPageStaysSmall: output without end does not fill the page, which shows the
// last of it.
func TestPageStaysSmall(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "node")
	page, err := os.ReadFile("page.html")
	require.NoError(t, err)
	script := regexp.MustCompile("(?s)<script>(.*)</script>").FindSubmatch(page)
	require.NotNil(t, script)
	// A file, as a word of a command line may not be that long everywhere.
	file := t.TempDir() + "/page.cjs"
	require.NoError(t, os.WriteFile(file, []byte(dom+string(script[1])+endless), 0o600))
	out, err := exec.CommandContext(t.Context(), "node", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "shown\n", string(out))
}
