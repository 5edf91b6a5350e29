import { createVercelSandbox } from "@ai-sdk/sandbox-vercel";
import { Sandbox } from "@vercel/sandbox";
import { assert, check, done, until } from "./check.mjs";

for (const environment of [{ runtime: "node24" }, { image: "vercel/sandbox/universal:latest" }]) {
  const label = Object.values(environment)[0];
  const provider = createVercelSandbox({ ...environment, name: "template-" + Object.keys(environment)[0], ports: [3000] });
  const id = Object.keys(environment)[0];
  let network, session;
  await check(label + ": create", async () => {
    network = await provider.createSession({
      sessionId: id, identity: id,
      onFirstCreate: (template) => template.writeTextFile({ path: "seed.txt", content: "seed" }),
    });
    session = network.restricted();
  });
  await check(label + ": from the template", async () => assert.equal(await session.readTextFile({ path: "seed.txt" }), "seed"));
  await check(label + ": second session of the template", async () => {
    const second = await provider.createSession({ sessionId: id + "2", identity: id, onFirstCreate: () => assert.fail("made twice") });
    assert.equal(await second.restricted().readTextFile({ path: "seed.txt" }), "seed");
    await second.destroy();
  });
  await check(label + ": run", async () => {
    const { exitCode, stdout, stderr } = await session.run({ command: "echo out; echo err >&2; exit 4" });
    assert.deepEqual([exitCode, stdout, stderr], [4, "out\n", "err\n"]);
  });
  await check(label + ": text", async () => {
    await session.writeTextFile({ path: "a/b.txt", content: "ä" });
    assert.equal(await session.readTextFile({ path: "a/b.txt" }), "ä");
  });
  await check(label + ": bytes", async () => {
    await session.writeBinaryFile({ path: "c.bin", content: new Uint8Array([0, 255, 10]) });
    assert.deepEqual([...(await session.readBinaryFile({ path: "c.bin" }))], [0, 255, 10]);
  });
  await check(label + ": missing file", async () => assert.equal(await session.readTextFile({ path: "nope" }), null));
  await check(label + ": process", async () => {
    const process = await session.spawn({ command: "echo spawned; sleep 60" });
    const { value } = await process.stdout.getReader().read();
    assert.match(new TextDecoder().decode(value), /spawned/);
    await process.kill();
    assert.notEqual((await process.wait()).exitCode, 0);
  });
  await check(label + ": abort", async () => {
    const abort = new AbortController();
    setTimeout(() => abort.abort(), 300);
    await assert.rejects(session.run({ command: "sleep 60", abortSignal: abort.signal }));
  });
  await check(label + ": port", async () => {
    await session.spawn({ command: `node -e 'require("http").createServer((q, r) => r.end("pong")).listen(3000)'` });
    const { url } = await network.getPortEndpoint({ port: 3000, protocol: "http" });
    assert.equal(await until(async () => {
      const page = await fetch(url);
      assert.equal(page.status, 200);
      return page.text();
    }), "pong");
  });
  await check(label + ": network policy", async () => {
    await network.setNetworkPolicy({ mode: "deny-all" });
    assert.notEqual((await session.run({ command: "curl -sS -m 3 https://example.com" })).exitCode, 0);
  });
  await check(label + ": stop and resume", async () => {
    await network.stop();
    network = await provider.resumeSession({ sessionId: id });
    assert.equal(await network.restricted().readTextFile({ path: "a/b.txt" }), "ä");
  });
  await check(label + ": destroy", async () => {
    await network.destroy();
    await assert.rejects(provider.resumeSession({ sessionId: id }));
  });
}
await check("sandbox of one's own", async () => {
  const sandbox = await Sandbox.create();
  const session = await createVercelSandbox({ sandbox }).createSession();
  await session.stop();
  assert.equal((await session.restricted().run({ command: "echo on" })).stdout, "on\n");
  await sandbox.stop();
});
await check("wrong token", async () => {
  const provider = createVercelSandbox({ token: "wrong", teamId: process.env.VERCEL_TEAM_ID, projectId: process.env.VERCEL_PROJECT_ID });
  await assert.rejects(provider.createSession(), { name: /HarnessSandboxAuthenticationError/ });
});
done("@ai-sdk/sandbox-vercel");
