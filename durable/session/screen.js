// The page keeps only the last part of all output, because endless output would freeze it.
// Sizes are in characters; an element counts as several.
const most = { chars: 2 << 20, element: 100, line: 4096, sequence: 4096 }
const shown = [] // the lines that are complete, oldest first
let chars = 0

// Screen draws the output of a command with its colors, and lets it overwrite the last line,
// as progress bars do. It ignores other control sequences. Text never becomes markup.
class Screen {
  constructor(element) {
    this.element = element
    this.streams = {}
    this.begin()
  }
  begin() {
    this.cells = []
    this.column = 0
    this.line = document.createElement("span")
    this.line.className = "line"
    this.element.append(this.line)
  }
  write(stream, text) {
    const s = this.streams[stream] ||= { rest: "", style: styled({ stream }, []) }
    text = s.rest + text
    s.rest = ""
    const token = /\x1b\[([0-?]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-OQ-WYZ\\`a-~]|[^\x1b]+/y
    const begun = /\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)$/y
    for (let i = 0; i < text.length; i = token.lastIndex) {
      token.lastIndex = begun.lastIndex = i
      const found = token.exec(text)
      if (!found) {
        if (begun.test(text)) { // incomplete: keep it, unless it is too long
          if (text.length - i <= most.sequence) s.rest = text.slice(i)
          break
        }
        token.lastIndex = i + 1
      } else if (found[2] === "m") s.style = styled(s.style, found[1].split(/[;:]/).slice(0, 32).map(Number))
      else if (found[2] === "K") this.erase(Number(found[1]))
      else if (text[i] !== "\x1b") for (const c of found[0]) this.put(c, s.style)
    }
    this.draw("")
  }
  erase(how) {
    if (how !== 1) this.cells.length = how === 2 ? 0 : Math.min(this.column, this.cells.length)
    else this.cells.fill(blank, 0, this.column + 1)
  }
  put(c, style) {
    if (c === "\n") this.end("\n")
    else if (c === "\r") this.column = 0
    else if (c === "\b") this.column = Math.max(this.column - 1, 0)
    else if (c >= " " && c !== "\x7f" || c === "\t") {
      if (this.column >= most.line) this.end("")
      while (this.cells.length < this.column) this.cells.push(blank)
      this.cells[this.column++] = { c, style }
    }
  }
  draw(end) {
    const parts = []
    for (const { c, style } of this.cells) {
      const last = parts.at(-1)
      if (last && last.style.key === style.key) last.text += c
      else parts.push({ text: c, style })
    }
    if (!parts.length) parts.push({ text: "", style: {} })
    parts.at(-1).text += end
    this.line.replaceChildren(...parts.map(({ text, style }) => {
      const span = document.createElement("span")
      Object.assign(span.style, css(style))
      span.textContent = text
      return span
    }))
    return parts.reduce((n, part) => n + part.text.length + most.element, most.element)
  }
  // end completes a line, and removes the oldest lines beyond the limit.
  end(text) {
    const size = this.draw(text)
    shown.push({ line: this.line, size })
    for (chars += size; chars > most.chars; ) {
      const old = shown.shift()
      chars -= old.size
      old.line.remove()
    }
    this.begin()
  }
}
const blank = { c: " ", style: {} }

// styled returns a style changed by the numbers of a color sequence. Its keys are the numbers
// of what is set.
function styled({ key, ...style }, n) {
  const off = { 22: 1, 24: 4, 27: 7, 39: 38, 49: 48 }
  for (let i = 0; i < n.length; i++) {
    const code = n[i], base = code % 60 - code % 10 // the bright colors are 60 above
    if (!code) style = { stream: style.stream }
    else if (code === 1 || code === 4 || code === 7) style[code] = true
    else if (off[code]) delete style[off[code]]
    else if (code === 38 || code === 48) {
      const indexes = n[i + 1] === 5
      if (indexes || n[i + 1] === 2) style[code] = indexes ? indexed(n[i + 2]) : rgb(n[i + 2], n[i + 3], n[i + 4])
      i += indexes ? 2 : 4
    } else if ((base === 30 || base === 40) && code % 10 < 8) style[base + 8] = indexed(code % 10)
  }
  return { ...style, key: JSON.stringify(style) }
}
const rgb = (...parts) => `rgb(${parts.map((p) => Math.min(p || 0, 255)).join(", ")})`
function indexed(n) {
  n = Math.min(n || 0, 255)
  if (n < 16) return `var(--c${n % 8})`
  if (n > 231) return rgb(...Array(3).fill(8 + 10 * (n - 232)))
  return rgb(...[36, 6, 1].map((by) => [0, 95, 135, 175, 215, 255][Math.floor((n - 16) / by) % 6]))
}
function css({ stream, 1: bold, 4: underlined, 7: reversed, 38: color, 48: background }) {
  color ||= stream === "stderr" ? "var(--dim)" : ""
  if (reversed) [color, background] = [background || "var(--bg)", color || "var(--fg)"]
  return {
    ...(color && { color }), ...(background && { backgroundColor: background }),
    ...(bold && { fontWeight: "bold" }), ...(underlined && { textDecoration: "underline" }),
  }
}
