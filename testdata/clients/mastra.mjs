import { Workspace } from "@mastra/core/workspace";
import { VercelSandbox } from "@mastra/vercel";
import { assert, check, done, until } from "./check.mjs";

const sandboxName = "mastra";
const sandbox = new VercelSandbox({ sandboxName, ports: [3000], env: { A: "1" }, timeout: 120_000, resources: { vcpus: 2 } });
const workspace = new Workspace({ sandbox });
const sh = (script, options) => sandbox.executeCommand("sh", ["-c", script], options);

await check("start", () => sandbox.start());
await check("workspace", async () => assert.equal((await workspace.sandbox.executeCommand("echo", ["hi"])).stdout, "hi\n"));
await check("environment", async () => assert.equal((await sh("echo $A-$B", { env: { B: "2" } })).stdout, "1-2\n"));
await check("directory", async () => assert.equal((await sandbox.executeCommand("pwd", [], { cwd: "/tmp" })).stdout, "/tmp\n"));
await check("exit code", async () => assert.equal((await sh("exit 3")).exitCode, 3));
await check("missing program", async () => assert.notEqual((await sh("nosuchprogram")).exitCode, 0));
await check("output as it comes", async () => {
  let out = "", errors = "";
  await sh("for i in 1 2 3; do echo o$i; echo e$i >&2; sleep 0.05; done", { onStdout: (text) => (out += text), onStderr: (text) => (errors += text) });
  assert.deepEqual([out, errors], ["o1\no2\no3\n", "e1\ne2\ne3\n"]);
});
await check("time limit", async () => {
  const result = await sandbox.executeCommand("sleep", ["60"], { timeout: 500 });
  assert.equal(result.success, false);
});
await check("abort", async () => {
  const abort = new AbortController();
  const running = sandbox.executeCommand("sleep", ["60"], { abortSignal: abort.signal });
  setTimeout(() => abort.abort(), 300);
  await running.then((result) => assert.equal(result.success, false), () => {});
});
await check("files", async () => {
  await sandbox.writeFiles([{ path: "dir/a.txt", content: "hello" }, { path: "/tmp/b.bin", content: Buffer.from([0, 1, 255]) }]);
  assert.equal((await sh("cat dir/a.txt; od -An -tx1 /tmp/b.bin")).stdout.trim(), "hello 00 01 ff");
});
await check("process", async () => {
  const process = await sandbox.processes.spawn("for i in 1 2 3; do echo x$i; done");
  const result = await process.wait();
  assert.equal(result.exitCode, 0);
  assert.match(process.stdout ?? result.stdout, /x3/);
});
await check("killed process", async () => {
  const process = await sandbox.processes.spawn("sleep 60");
  assert.ok((await sandbox.processes.list()).length > 0);
  assert.equal(await process.kill(), true);
  assert.notEqual((await process.wait()).exitCode, 0);
});
await check("server", async () => {
  const server = await sandbox.processes.spawn(`node -e 'require("http").createServer((q, r) => r.end("pong " + q.url)).listen(3000)'`);
  const url = await sandbox.networking.getPortUrl(3000);
  assert.equal(await until(async () => {
    const page = await fetch(url + "/ping");
    assert.equal(page.status, 200);
    return page.text();
  }), "pong /ping");
  await server.kill();
});
await check("information", async () => assert.equal((await sandbox.getInfo()).status, "running"));
await check("second handle", async () => {
  const second = new VercelSandbox({ sandboxName, timeout: 120_000 });
  await second.start();
  assert.equal((await second.executeCommand("cat", ["dir/a.txt"])).stdout, "hello");
});
await check("stop", () => sandbox._stop());
await check("start again", async () => {
  await sandbox._start();
  assert.equal((await sandbox.executeCommand("cat", ["dir/a.txt"])).stdout, "hello");
});
await check("destroy", () => sandbox._destroy());
done("@mastra/vercel");
