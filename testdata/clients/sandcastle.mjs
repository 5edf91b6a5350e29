import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { vercel } from "@ai-hero/sandcastle/sandboxes/vercel";
import { assert, check, done } from "./check.mjs";

const folder = mkdtempSync(join(tmpdir(), "sandcastle-"));
writeFileSync(join(folder, "a.txt"), "hello");
let sandbox;
// Its working directory is below one that the image doesn't have.
await check("create from the image", async () => { await (await vercel().create({ env: {} })).close(); });
await check("create", async () => { sandbox = await vercel({ runtime: "node24", env: { A: "1" } }).create({ env: { A: "1" } }); });
await check("run", async () => {
  const { exitCode, stdout, stderr } = await sandbox.exec("echo out $A; echo err >&2; exit 3");
  assert.deepEqual([exitCode, stdout, stderr], [3, "out 1\n", "err\n"]);
});
await check("directory", async () => assert.equal((await sandbox.exec("pwd", { cwd: "/tmp" })).stdout, "/tmp\n"));
await check("root", async () => assert.equal((await sandbox.exec("id -u", { sudo: true })).stdout, "0\n"));
await check("lines", async () => {
  const lines = [];
  await sandbox.exec("for i in 1 2 3; do echo line $i; done", { onLine: (line) => lines.push(line) });
  assert.deepEqual(lines, ["line 1", "line 2", "line 3"]);
});
// It waits for an end of the writer's, which the SDK never tells it of.
await check("last line without an end", async () => {
  const lines = [];
  await sandbox.exec("printf 'line 1\\nline 2'", { onLine: (line) => lines.push(line) });
  assert.deepEqual(lines, ["line 1", "line 2"]);
});
await check("folder in", async () => {
  await sandbox.copyIn(folder, "/vercel/sandbox/workspace/in");
  assert.equal((await sandbox.exec("cat in/a.txt")).stdout, "hello");
});
await check("file in", async () => {
  await sandbox.copyIn(join(folder, "a.txt"), "/vercel/sandbox/workspace/b.txt");
  assert.equal((await sandbox.exec("cat b.txt")).stdout, "hello");
});
await check("file out", async () => {
  await sandbox.exec("printf ä > out.txt");
  await sandbox.copyFileOut("/vercel/sandbox/workspace/out.txt", join(folder, "deep", "out.txt"));
  assert.equal(readFileSync(join(folder, "deep", "out.txt"), "utf8"), "ä");
});
await check("missing file out", () => assert.rejects(sandbox.copyFileOut("/vercel/sandbox/nope", join(folder, "nope"))));
await check("close", () => sandbox.close());
done("@ai-hero/sandcastle", "create from the image", "last line without an end");
