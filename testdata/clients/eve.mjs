import { assert, check, done } from "./check.mjs";

// eve loads its providers from its own build: none is exported.
const at = new URL("./node_modules/eve/dist/src/", import.meta.url).href;
const { createVercelSandboxProvider } = await import(at + "execution/sandbox/bindings/vercel.js");
const { Snapshot } = await import(at + "compiled/@vercel/sandbox/index.js");

const provider = createVercelSandboxProvider({
  image: "vercel/sandbox/universal:latest",
  tags: { a: "b" },
  prepare: (sandbox) => sandbox.run({ command: "sudo -n chown $(id -u) /workspace && echo prepared > /workspace/p.txt" }),
});
const build = () => provider.prepare({ resources: [], log() {}, sourceRevision: "r1" });
const start = async (id) => {
  const started = await provider.start({ session: { id } }, {}, template);
  return { state: started.state, handle: started.handle ?? started };
};
let template, session;

await check("build a template", async () => { template = await build(); });
await check("build finds it", async () => assert.equal((await build()).snapshotId, template.snapshotId));
await check("start", async () => { session = await start("one"); });
const { sandbox } = session.handle;
await check("run", async () => {
  const result = await sandbox.run({ command: "pwd; cat p.txt; echo e >&2; exit 3" });
  assert.deepEqual([result.exitCode, result.stdout, result.stderr], [3, "/workspace\nprepared\n", "e\n"]);
});
await check("files", async () => {
  await sandbox.writeTextFile({ path: "d/x.txt", content: "hej" });
  assert.equal(await sandbox.readTextFile({ path: "d/x.txt" }), "hej");
});
await check("missing file", async () => assert.equal((await sandbox.readTextFile({ path: "nope" })) ?? null, null));
await check("remove", async () => {
  await sandbox.removePath({ path: "d", recursive: true });
  assert.equal((await sandbox.readTextFile({ path: "d/x.txt" })) ?? null, null);
});
await check("network policy", async () => {
  await sandbox.setNetworkPolicy("deny-all");
  const result = await sandbox.run({ command: "curl -sS -m 3 https://example.com" });
  assert.notEqual(result.exitCode, 0);
  await sandbox.setNetworkPolicy("allow-all");
});
await check("stop and start again", async () => {
  await sandbox.run({ command: "echo kept > k" });
  await session.handle.onSandboxStop();
  assert.equal((await (await start("one")).handle.sandbox.run({ command: "cat k" })).stdout, "kept\n");
});
await check("resume by its state", async () => {
  const resumed = await provider.resume({ session: { id: "one" } }, template, session.state);
  assert.equal((await (resumed.handle ?? resumed).sandbox.run({ command: "cat k" })).stdout, "kept\n");
});
for (let round = 1; round <= 40; round++) {
  await check(`two starts of one session ${round}`, async () => {
    const [a, b] = await Promise.all([start("race" + round), start("race" + round)]);
    assert.equal(a.handle.sandbox.name, b.handle.sandbox.name);
  });
}
await check("template whose snapshot is deleted", async () => {
  await (await Snapshot.get({ snapshotId: template.snapshotId })).delete();
  await assert.rejects(start("late"), { name: "SandboxTemplateNotProvisionedError" });
});
await check("build again", build);
await check("delete", () => session.handle.onSandboxDelete?.({}));
done("eve");
