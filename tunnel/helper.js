const net = require("net"), fs = require("fs");
const port = Number(process.argv[1]);

function dial(hosts) {
  if (!hosts.length) process.exit(111);
  const s = net.connect({ port, host: hosts[0], allowHalfOpen: true, noDelay: true });
  const failed = () => dial(hosts.slice(1));
  s.once("error", failed);
  s.once("connect", () => { s.off("error", failed); serve(s); });
}

function serve(server) {
  const queue = [];
  let writing = false, ended = false, closing = false;
  function flush() {
    const b = queue.shift();
    writing = b !== undefined;
    if (!writing) return server.resume();
    fs.write(1, b, 0, b.length, null, (err, n) => {
      if (err && err.code !== "EAGAIN") process.exit(1);
      if (err || n < b.length) queue.unshift(b.subarray(n || 0));
      if (err) setTimeout(flush, 2); else flush();
    });
  }
  function put(kind, data) {
    const head = Buffer.alloc(3);
    head.write(kind);
    head.writeUInt16BE(data ? data.length : 0, 1);
    queue.push(data ? Buffer.concat([head, data]) : head);
    if (!writing) flush();
  }
  server.on("data", (data) => {
    server.pause();
    for (let i = 0; i < data.length; i += 32768) put("d", data.subarray(i, i + 32768));
  });
  server.on("end", () => { ended = true; put("e"); });
  server.on("error", () => put(ended ? "x" : "r"));
  server.on("close", () => { if (closing) process.exit(0); });

  let input = Buffer.alloc(0);
  function handle() {
    while (input.length >= 3) {
      const kind = input.toString("latin1", 0, 1), size = input.readUInt16BE(1);
      if (kind === "c") {
        closing = true;
        if (server.destroyed || server.writableFinished) process.exit(0);
        server.end(() => process.exit(0));
        return;
      }
      if (input.length < 3 + size) return;
      const data = input.subarray(3, 3 + size);
      input = input.subarray(3 + size);
      if (server.destroyed || server.writableEnded) continue;
      if (kind === "e") server.end();
      else if (!server.write(data)) {
        process.stdin.pause();
        const on = () => { server.off("drain", on); server.off("close", on); process.stdin.resume(); };
        server.on("drain", on);
        server.on("close", on);
      }
    }
  }
  process.stdin.on("data", (data) => { input = Buffer.concat([input, data]); handle(); });
  process.stdin.on("end", () => process.exit(0));
  process.stdin.on("error", () => process.exit(0));
  queue.push(Buffer.from("\x01sandbox-tunnel-framed\x02"));
  flush();
}

dial(["127.0.0.1", "::1"]);
