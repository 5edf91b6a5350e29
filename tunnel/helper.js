const net = require("net"), fs = require("fs");

// Bytes that one end may send before the other end has consumed some.
const FIRST = 256 << 10, MOST = 2 << 20, ALL = 32 << 20;

const streams = new Map();
let out = [], rest = null, writing = false;

function put(kind, id, data) {
  const head = Buffer.allocUnsafe(7);
  head.write(kind, 0, "latin1");
  head.writeUInt32BE(id, 1);
  head.writeUInt16BE(data ? data.length : 0, 5);
  send(head);
  if (data) send(data);
}

function send(b) {
  out.push(b);
  if (!writing) {
    writing = true;
    setImmediate(flush); // what follows goes with it
  }
}

// The other end always reads, so writing does not wait for it.
function flush() {
  try {
    while (rest || out.length) {
      if (!rest) {
        rest = out.length > 1 ? Buffer.concat(out) : out[0];
        out = [];
      }
      const n = fs.writeSync(1, rest);
      rest = n < rest.length ? rest.subarray(n) : null;
    }
    writing = false;
  } catch (err) {
    if (err.code !== "EAGAIN") process.exit(0);
    setTimeout(flush, 1);
  }
}

class Stream {
  constructor(id, port) {
    this.id = id;
    this.port = port;
    this.credit = this.window = FIRST;
    this.taken = 0;
    this.saidAll = this.deaf = this.ended = false;
    this.dial(["127.0.0.1", "::1"]);
  }

  dial(hosts) {
    if (!hosts.length) {
      put("n", this.id);
      streams.delete(this.id);
      return;
    }
    const s = this.sock = net.connect({ port: this.port, host: hosts[0], allowHalfOpen: true, noDelay: true });
    const failed = () => { if (this.sock === s) this.dial(hosts.slice(1)); };
    s.once("error", failed);
    s.once("connect", () => { s.off("error", failed); this.begin(s); });
  }

  begin(s) {
    put("o", this.id);
    s.on("data", (data) => {
      for (let i = 0; i < data.length; i += 65535) put("d", this.id, data.subarray(i, i + 65535));
      this.credit -= data.length;
      this.watch();
    });
    s.on("end", () => { this.saidAll = true; put("e", this.id); });
    s.on("error", () => {
      if (!this.saidAll) put("r", this.id);
      else if (!this.deaf) put("x", this.id);
      this.saidAll = this.deaf = true;
    });
    s.on("close", () => this.over());
    s.pause();
    this.watch();
  }

  // A read is up to 64 KiB, more than a little credit: the rest is for what it reads.
  watch() {
    if (this.credit >= 65536) this.sock.resume();
    else this.sock.pause();
  }

  add(data) {
    if (this.deaf || this.sock.destroyed) this.took(data.length);
    else this.sock.write(data, () => this.took(data.length));
  }

  took(n) {
    this.taken += n;
    if (this.taken < this.window / 4 || !streams.has(this.id)) return;
    let more = this.taken;
    const window = Math.min(MOST, Math.max(FIRST, ALL / streams.size));
    if (window > this.window) {
      more += Math.floor(window - this.window);
      this.window = window;
    }
    this.taken = 0;
    const data = Buffer.alloc(4);
    data.writeUInt32BE(more, 0);
    put("w", this.id, data);
  }

  end(closing) {
    this.closing = closing;
    if (!this.ended && !this.sock.destroyed) this.sock.end(() => this.over());
    this.ended = true;
    if (this.sock.destroyed || this.sock.writableFinished) this.over();
  }

  over() {
    if (!this.closing || !streams.delete(this.id)) return;
    this.sock.destroy();
    put("c", this.id);
  }
}

function take(kind, id, data) {
  if (kind === "q") process.exit(0);
  if (kind === "o") {
    streams.set(id, null); // before it can be refused
    streams.set(id, new Stream(id, data.readUInt16BE(0)));
    return;
  }
  const s = streams.get(id);
  if (!s) return;
  if (kind === "d") s.add(data);
  else if (kind === "w") {
    s.credit += data.readUInt32BE(0);
    s.watch();
  } else if (kind === "e" || kind === "c") s.end(kind === "c");
  else if (kind === "k") {
    streams.delete(id);
    s.sock.on("error", () => {});
    s.sock.destroy();
  }
}

let input = Buffer.alloc(0);
process.stdin.on("data", (data) => {
  input = input.length ? Buffer.concat([input, data]) : data;
  let at = 0;
  while (input.length - at >= 7) {
    const size = input.readUInt16BE(at + 5);
    if (input.length - at < 7 + size) break;
    take(input.toString("latin1", at, at + 1), input.readUInt32BE(at + 1), input.subarray(at + 7, at + 7 + size));
    at += 7 + size;
  }
  input = input.subarray(at);
});
process.stdin.on("end", () => process.exit(0));
process.stdin.on("error", () => process.exit(0));
send(Buffer.from("\x01sandbox-tunnel-ready\x02", "latin1"));
