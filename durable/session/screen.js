// What is shown of outputs: a program that writes without end would freeze the
// page.
const most = { pieces: 20000, chars: 2 << 20 }
// A line is as wide as columns, of which jump can be left empty, and the last so many
// lines of a command may be written over. A sequence that does not end is one up to these lengths.
const size_ = { columns: 4096, jump: 256, lines: 50, sequence: 64, string: 4096, marks: 8 }
let shown = [], first = 0, pieces = 0, chars = 0

// keep counts a line as it is now, and removes the oldest ones that are too many.
function keep(line) {
  if (!line.counted) shown.push(line)
  line.counted ||= { pieces: 0, chars: 0 }
  pieces += line.pieces - line.counted.pieces
  chars += line.chars - line.counted.chars
  line.counted = { pieces: line.pieces, chars: line.chars }
  for (; (pieces > most.pieces || chars > most.chars) && first < shown.length - 1; first++) {
    const old = shown[first], parent = old.element.parentNode
    pieces -= old.counted.pieces
    chars -= old.counted.chars
    old.gone = true
    old.element.remove()
    if (parent && !parent.firstChild) parent.remove()
  }
  if (first > most.pieces) { shown = shown.slice(first); first = 0 }
}

// Screen draws what a command writes as a terminal does, as far as a log can: colours,
// and what goes back in the last lines, as progress bars do. Anything else that a
// program may ask of a terminal is dropped. Text becomes text, and never markup.
class Screen {
  constructor(element) {
    this.element = element
    this.lines = []
    this.row = this.column = 0
    this.streams = {}
    this.dirty = new Set()
  }
  write(stream, text) {
    const s = this.streams[stream] ||= { rest: "", style: plain(stream), string: 0 }
    text = s.rest + text
    s.rest = ""
    for (let i = 0; i < text.length;) {
      if (s.string) i = this.skip(s, text, i)
      else if (text[i] === "\x1b") i = this.sequence(s, text, i)
      else {
        const end = text.indexOf("\x1b", i), part = text.slice(i, end < 0 ? undefined : end)
        for (const c of part) this.put(c, s.style)
        i += part.length
      }
    }
    for (const line of this.dirty) this.draw(line)
    this.dirty.clear()
  }
  // skip drops a string for the terminal, like a title, up to its end.
  skip(s, text, i) {
    for (; i < text.length; i++) {
      if (text[i] === "\x07" || --s.string === 0) { s.string = 0; return i + 1 }
      if (text[i] !== "\x1b") continue
      if (i + 1 === text.length) { s.rest = "\x1b"; return text.length }
      s.string = 0
      return text[i + 1] === "\\" ? i + 2 : i
    }
    return i
  }
  // sequence obeys or drops the sequence at i, and returns what is behind it.
  sequence(s, text, i) {
    const m = /\x1b(?:\[([0-?]*)[ -/]*([@-~])?|([\]PX^_])|[ -/]*([0-~])?)/y
    m.lastIndex = i
    const [all, values, final, string, other] = m.exec(text), end = i + all.length
    if (string) s.string = size_.string
    else if (final) this.control(s, values, final)
    else if (end === text.length && !other && all.length <= size_.sequence) s.rest = all // the rest is to come
    return end
  }
  control(s, values, final) {
    const n = values.split(/[;:]/).slice(0, 32).map((v) => Math.min(Number(v) || 0, 99999)), by = Math.max(n[0], 1)
    switch (final) {
      case "m": s.style = styled(s.style, n); break
      case "A": case "F": this.row = Math.max(this.row - by, 0); if (final === "F") this.column = 0; break
      case "B": case "E": this.row = Math.min(this.row + by, Math.max(this.lines.length - 1, 0)); if (final === "E") this.column = 0; break
      case "C": this.column = Math.max(this.column, Math.min(this.column + by, size_.jump)); break
      case "D": this.column = Math.max(this.column - by, 0); break
      case "G": this.column = Math.min(by, size_.jump) - 1; break
      case "K": this.erase(n[0]); break
      case "J": if (n[0] === 0) { this.erase(0); for (const line of this.lines.slice(this.row + 1)) { line.cells = []; this.dirty.add(line) } } break
    }
  }
  erase(how) {
    const line = this.line()
    if (how !== 1) line.cells.length = how === 2 ? 0 : Math.min(line.cells.length, this.column)
    else for (let i = 0; i <= this.column && i < line.cells.length; i++) line.cells[i] = blank
    this.dirty.add(line)
  }
  put(c, style) {
    if (c === "\r") this.column = 0
    else if (c === "\n") this.feed(true)
    else if (c === "\b") this.column = Math.max(this.column - 1, 0)
    else if (c === "\t") do this.cell(" ", style); while (this.column % 8 && this.column < size_.columns)
    else if (c >= " " && c !== "\x7f") this.cell(c, style)
  }
  cell(c, style) {
    if (this.column >= size_.columns) this.feed(false)
    const line = this.line(), before = line.cells[this.column - 1]
    this.dirty.add(line)
    if (before && c > "~" && mark.test(c)) { // it belongs to the character before
      if (before.marks < size_.marks) line.cells[this.column - 1] = { c: before.c + c, style: before.style, marks: before.marks + 1 }
      return
    }
    while (line.cells.length < this.column) line.cells.push(blank)
    line.cells[this.column++] = c > "~" ? { c, style, marks: 0 } : style.ascii[c] ||= { c, style, marks: 0 }
  }
  // feed goes to the next line. One that is only too long goes on there.
  feed(ends) {
    const line = this.line()
    if (ends && !line.ends) { line.ends = true; this.dirty.add(line) }
    this.row++
    this.column = 0
    this.line()
  }
  line() {
    while (this.lines.length <= this.row) {
      const line = { cells: [], element: document.createElement("span"), pieces: 0, chars: 0 }
      line.element.className = "line"
      this.element.append(line.element)
      this.lines.push(line)
      if (this.lines.length > size_.lines) {
        const old = this.lines.shift()
        this.row--
        if (this.dirty.delete(old)) this.draw(old)
      }
    }
    return this.lines[this.row]
  }
  draw(line) {
    if (line.gone) return
    const parts = []
    for (const cell of line.cells) {
      const last = parts.at(-1)
      if (last && last.style.key === cell.style.key) last.text += cell.c
      else parts.push({ text: cell.c, style: cell.style })
    }
    if (line.ends && parts.length) parts.at(-1).text += "\n"
    else if (line.ends) parts.push({ text: "\n", style: blank.style })
    line.element.replaceChildren(...parts.map((part) => {
      const span = document.createElement("span")
      Object.assign(span.style, css(part.style))
      span.textContent = part.text
      return span
    }))
    line.pieces = parts.length + 1
    line.chars = parts.reduce((n, part) => n + part.text.length, 0)
    keep(line)
  }
}
const mark = /^\p{M}$/u
const plain = (stream) => keyed({ stream, color: "", background: "", flags: "" })
const keyed = (style) => ({ ...style, ascii: {}, key: [style.stream, style.color, style.background, style.flags].join() })
const blank = { c: " ", style: plain(""), marks: 0 }

// styled returns a style changed by the numbers of a sequence for it.
function styled(style, n) {
  let { stream, color, background, flags } = style
  for (let i = 0; i < n.length; i++) {
    const code = n[i], flag = { 1: "b", 2: "d", 3: "i", 4: "u", 7: "r", 9: "s" }[code], off = { 22: "bd", 23: "i", 24: "u", 27: "r", 29: "s" }[code]
    if (code === 0) color = background = flags = ""
    else if (flag) flags = flags.includes(flag) ? flags : [...flags, flag].sort().join("")
    else if (off) flags = [...flags].filter((f) => !off.includes(f)).join("")
    else if (code === 38 || code === 48) {
      let to = ""
      if (n[i + 1] === 5) { to = indexed(n[i + 2]); i += 2 }
      else if (n[i + 1] === 2) { to = rgb(n[i + 2], n[i + 3], n[i + 4]); i += 4 }
      if (code === 38) color = to
      else background = to
    }
    else if (code >= 30 && code <= 37 || code >= 90 && code <= 97) color = indexed(code % 10)
    else if (code >= 40 && code <= 47 || code >= 100 && code <= 107) background = indexed(code % 10)
    else if (code === 39) color = ""
    else if (code === 49) background = ""
  }
  return keyed({ stream, color, background, flags })
}
const rgb = (...parts) => `rgb(${parts.map((p) => Math.min(p || 0, 255)).join(", ")})`
function indexed(n = 0) {
  if (n < 16) return `var(--c${n % 8})`
  if (n > 231) return rgb(...Array(3).fill(8 + 10 * (Math.min(n, 255) - 232)))
  return rgb(...[36, 6, 1].map((by) => [0, 95, 135, 175, 215, 255][Math.floor((n - 16) / by) % 6]))
}
function css({ stream, color, background, flags }) {
  color ||= stream === "stderr" ? "var(--dim)" : ""
  if (flags.includes("r")) [color, background] = [background || "var(--bg)", color || "var(--fg)"]
  const style = {}
  if (color) style.color = color
  if (background) style.backgroundColor = background
  if (flags.includes("b")) style.fontWeight = "bold"
  if (flags.includes("d")) style.opacity = "0.6"
  if (flags.includes("i")) style.fontStyle = "italic"
  const lines = [flags.includes("u") && "underline", flags.includes("s") && "line-through"].filter(Boolean).join(" ")
  if (lines) style.textDecoration = lines
  return style
}
