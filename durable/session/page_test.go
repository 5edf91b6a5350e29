package session_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// dom is the part of a browser that the page's script needs to show events.
const dom = `
class Node_ {
  constructor() { this.children = []; this.style = {}; this.classList = { remove() {} }; this.text = ""; this.parentNode = null }
  get textContent() { return this.text + this.children.map((c) => c.textContent).join("") }
  set textContent(t) { this.text = t; this.children = [] }
  get firstChild() { return this.children[0] }
  get isConnected() { return this.root || !!this.parentNode?.isConnected }
  append(...all) { for (const c of all) { c.parentNode = this; this.children.push(c) } }
  remove() { if (!this.parentNode) return; const i = this.parentNode.children.indexOf(this); this.parentNode.children.splice(i, 1); this.parentNode = null }
  replaceChildren(...all) { for (const c of this.children) c.parentNode = null; this.children = []; this.append(...all) }
  count() { return 1 + this.children.reduce((n, c) => n + c.count(), 0) }
}
const elements = {}
globalThis.document = {
  createElement: () => new Node_(),
  getElementById: (id) => { if (!elements[id]) { elements[id] = new Node_(); elements[id].root = true }; return elements[id] },
}
globalThis.window = globalThis
globalThis.location = { hash: "" }
globalThis.localStorage = { getItem: () => null, setItem() {}, removeItem() {} }
globalThis.ResizeObserver = class { observe() {} }
globalThis.Option = Node_
globalThis.setInterval = () => {}
globalThis.fetch = () => new Promise(() => {})
`

// endless writes a large output of both streams, and then its last words.
const endless = `
const log = document.getElementById("log")
show({ type: "command_start", id: "c", command: "yes" })
for (let i = 0; i < 25000; i++) show({ type: "command_output", id: "c", stream: i % 7 ? "stdout" : "stderr", data: "\x1b[3" + i % 8 + "my\n" })
if (log.count() > most.chars / most.element + 100) throw new Error(log.count() + " elements")
for (let i = 0; i < 40; i++) show({ type: "command_output", id: "c", stream: "stdout", data: "z".repeat(65536) })
if (log.textContent.length > most.chars + 65536) throw new Error(log.textContent.length + " characters")
show({ type: "command_output", id: "c", stream: "stdout", data: "\x1b[" + "1".repeat(100000) })
show({ type: "command_output", id: "c", stream: "stdout", data: "the end" })
if (!log.textContent.endsWith("zthe end")) throw new Error("the end is not shown: " + log.textContent.slice(-50))
console.log("shown")
process.exit(0)
`

// screens are outputs of programs with what the screen shows: as text, or with styles, each
// as "<style>text".
const screens = `
const cases = [
  ["10%\r20%\rdone\n", "done\n"], ["100 of 200\r\x1b[Kdone\n", "done\n"], ["50%\x1b[1K\r99", "99 "], ["abc\x1b[2Kd", "   d"],
  ["a\r\nb\r\n", "a\nb\n"], ["ab\bc\n", "ac\n"], ["a\tb\tc\n", "a\tb\tc\n"], ["x\x07\x00\x0ey\x7f\n", "xy\n"],
  ["one\n\x1b[2Atwo\x1b[99999C!\n", "one\ntwo!\n"],
  ["\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1bPq#0\x1b\\c\x1b(Bd\x1b7e\x1b[?25lf\x1b[6ng\n", "abcdefg\n"],
  ["<img src=x onerror=alert(1)>&amp;</pre><script>\n", "<img src=x onerror=alert(1)>&amp;</pre><script>\n"],
  ["\x1b[31mred\x1b[0m no", "<color:var(--c1)>red<> no", true], ["\x1b[1;4;91mx\x1b[22;24my\x1b[39mz", "<color:var(--c1);fontWeight:bold;textDecoration:underline>x<color:var(--c1)>y<>z", true],
  ["\x1b[38;5;196ma\x1b[38;5;250mb\x1b[38;2;1;2;999mc\x1b[48;5;4md", "<color:rgb(255, 0, 0)>a<color:rgb(188, 188, 188)>b<color:rgb(1, 2, 255)>c<color:rgb(1, 2, 255);backgroundColor:var(--c4)>d", true],
  ["\x1b[7mx\x1b[27;9my", "<color:var(--bg);backgroundColor:var(--fg)>x<>y", true],
  ["\x1b[38;5;99999999999999999999mx\x1b[38mx\x1b[38;2mx\x1b[999;;mx", "<color:rgb(238, 238, 238)>xx<color:rgb(0, 0, 0)>x<>x", true],
]
const styles = (n) => n.children.length ? n.children.map(styles).join("") : n.text === "" ? "" : "<" + Object.entries(n.style).map(([k, v]) => k + ":" + v).join(";") + ">" + n.text
for (const [text, want, styled] of cases) {
  for (const pieces of [[text], [...text]]) { // at once, and byte by byte
    const pre = new Node_()
    const screen = new Screen(pre)
    for (const piece of pieces) screen.write("stdout", piece)
    const got = styled ? styles(pre) : pre.textContent
    if (got !== want) throw new Error(JSON.stringify({ text, pieces: pieces.length, got, want }))
  }
}
const both = new Node_()
const two = new Screen(both)
two.write("stdout", "\x1b[32mout ")
two.write("stderr", "err \x1b[")
two.write("stdout", "more\n")
if (styles(both) !== "<color:var(--c2)>out <color:var(--dim)>err <color:var(--c2)>more\n") throw new Error(styles(both))

// Excessive sequences are cut, quickly.
for (const text of [
  "\x1b[99999999B\x1b[99999999C\x1b[99999999Ax", "\x1b[99999C".repeat(1000) + "x", "\x1b[" + "9;".repeat(50000) + "m", "\x1b]0;" + "t".repeat(1 << 20),
  "e" + "\u0301".repeat(1 << 18), "x".repeat(1 << 20), "\x1b[1A\x1b[2K\n".repeat(20000), "\r".repeat(1 << 20), "\t".repeat(1 << 16), "\x1b".repeat(1 << 18), "\x1b[K\x1b[4096G!".repeat(20000), "\x1b[4096G!\n".repeat(20000), "\u202e" + "x".repeat(100) + "\n",
]) {
  const pre = new Node_(), screen = new Screen(pre)
  screen.write("stdout", text)
  screen.write("stdout", "\x07\x1b[0m\r\nthe end")
  if (!pre.textContent.endsWith("the end")) throw new Error("the end is not shown behind " + JSON.stringify(text.slice(0, 20)))
  if (pre.textContent.length > most.chars + 65536) throw new Error(pre.textContent.length + " characters of " + JSON.stringify(text.slice(0, 20)))
  if (screen.cells.length > most.line || Object.values(screen.streams).some((s) => s.rest.length > most.sequence)) throw new Error("what is kept has no bounds")
}
console.log("shown")
process.exit(0)
`

// waiting removes a queued command, in a session that has lost something.
const waiting = `
const log = document.getElementById("log"), asked = []
globalThis.fetch = async (path, o) => { asked.push([path, o.body]); return { ok: true } }
const play = async () => {
  run = "ses-1"
  show({ type: "command_queued", id: "cmd-7", command: "make" })
  if (!log.textContent.includes("Waits for its turn")) throw new Error(log.textContent)
  const find = (n) => n.textContent === "Take back" && n.onclick ? n : n.children.map(find).find(Boolean)
  await find(log).onclick()
  const got = JSON.stringify(asked), want = JSON.stringify([["interrupt", '{"runId":"ses-1","id":"cmd-7"}']])
  if (got !== want) throw new Error(got)
  show({ type: "command_start", id: "cmd-7", command: "make" })
  if (log.textContent.includes("Waits")) throw new Error(log.textContent)
  show({ type: "status", state: "rewound", at: 1, error: "<img src=x onerror=alert(1)> is lost" })
  if (!log.textContent.includes("rewound: <img src=x onerror=alert(1)> is lost")) throw new Error("what is lost is not shown as text")
  console.log("shown")
  process.exit(0)
}
play().catch((e) => { console.error(e); process.exit(1) })
`

// ended simulates a service that was killed and started again with another token.
const ended = `
const kept = { token: "old" }, asked = []
Object.assign(localStorage, { getItem: (k) => kept[k] ?? null, setItem: (k, v) => { kept[k] = v }, removeItem: (k) => { delete kept[k] } })
globalThis.history = { replaceState: (_, __, to) => { location.hash = to.replace(/^[^#]*/, "") } }
location.pathname = "/"; location.search = ""
let status = 401
globalThis.fetch = (path, o) => {
  asked.push([path, o.headers.Authorization])
  return status === 200 ? new Promise(() => {}) : Promise.resolve({ ok: false, status, json: async () => ({ error: "no" }), text: async () => "no" })
}
const want = (what, got, want) => { got = JSON.stringify(got); want = JSON.stringify(want); if (got !== want) throw new Error(what + ": " + got + ", want " + want) }
const refuse = async () => { asked.length = 0; await follow("ses-1"); want("refused", info.state, "refused") }
const play = async () => {
  status = 403; await refuse(); want("a session of somebody else", kept.token, "old")
  status = 401; await refuse(); want("the token of a run that has ended", [asked.at(-1), kept.token], [["start", "Bearer old"], undefined])
  await refuse(); want("without a token", asked.at(-1), ["start", null])
  keepUnsent([{ run: "ses-1", text: "make", key: "k" }])
  send(unsent[0])
  await new Promise((r) => setTimeout(r))
  want("a command", [unsent.length, $("line").value || ""], [1, ""])
  status = 200; asked.length = 0
  location.hash = "#token=new"; onhashchange() // in this tab
  want("in this tab", [asked, location.hash, run], [[["session?runId=ses-1", "Bearer new"]], "", "ses-1"])
  status = 401; await refuse()
  status = 200; asked.length = 0
  kept.token = "newer"; onstorage({ key: "token", newValue: "newer" })
  onstorage({ key: "token", newValue: "newer" }) // a repeated event changes nothing
  want("in another tab", [asked, run], [[["session?runId=ses-1", "Bearer newer"]], "ses-1"])
  console.log("shown")
  process.exit(0)
}
play().catch((e) => { console.error(e); process.exit(1) })
`

// script runs the page's script and then another one, which must print ok.
func script(t *testing.T, then string) {
	t.Helper()
	needs.Programs(t, "node")
	w := httptest.NewRecorder()
	session.New(nil, nil).Handler(&session.HandlerOptions{Page: true}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	script := regexp.MustCompile("(?s)<script>(.*)</script>").FindStringSubmatch(w.Body.String())
	require.NotNil(t, script)
	// Use a file: the length of a command line may be limited.
	file := t.TempDir() + "/page.cjs"
	require.NoError(t, os.WriteFile(file, []byte(dom+script[1]+then), 0o600))
	out, err := exec.CommandContext(t.Context(), "node", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "shown\n", string(out))
}

// TestPageStaysSmall: the page keeps only the end of an endless output.
func TestPageStaysSmall(t *testing.T) {
	t.Parallel()
	script(t, endless)
}

// TestScreen: the page draws progress bars and colors as a terminal does, also when
// sequences arrive in pieces. Output stays text within limits.
func TestScreen(t *testing.T) {
	t.Parallel()
	script(t, screens)
}

// TestPageQueue: the page shows that a queued command waits, and can remove it.
func TestPageQueue(t *testing.T) {
	t.Parallel()
	script(t, waiting)
}

// TestPageRefused: the page forgets a refused token and uses the next one, whichever tab
// gets it. Typed commands wait for it.
func TestPageRefused(t *testing.T) {
	t.Parallel()
	script(t, ended)
}
