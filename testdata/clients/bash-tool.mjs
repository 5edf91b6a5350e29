import { Sandbox } from "@vercel/sandbox";
import { createBashTool } from "bash-tool";
import { assert, check, done } from "./check.mjs";

// bash-tool knows a sandbox by a property that versions before 2 of the SDK had.
const sandbox = Object.assign(await Sandbox.create(), { sandboxId: "of a former version" });
let tools;
await check("upload", async () => {
  ({ tools } = await createBashTool({ sandbox, destination: "/vercel/workspace", files: { "index.js": "console.log(6 * 7)", "a/b.txt": "ä" } }));
});
const bash = (command) => tools.bash.execute({ command }, {});
await check("program", async () => assert.equal((await bash("node index.js")).stdout, "42\n"));
await check("directory", async () => assert.equal((await bash("pwd")).stdout, "/vercel/workspace\n"));
await check("exit code", async () => {
  const { exitCode, stdout, stderr } = await bash("echo out; echo err >&2; exit 5");
  assert.deepEqual([exitCode, stdout, stderr], [5, "out\n", "err\n"]);
});
await check("pipe", async () => assert.equal((await bash("seq 1000 | tail -1")).stdout, "1000\n"));
await check("read", async () => assert.equal((await tools.readFile.execute({ path: "a/b.txt" }, {})).content, "ä"));
await check("write", async () => {
  assert.equal((await tools.writeFile.execute({ path: "new/c.txt", content: "c" }, {})).success, true);
  assert.equal((await bash("cat new/c.txt")).stdout, "c");
});
await check("missing file", () => assert.rejects(tools.readFile.execute({ path: "nope" }, {})));
await check("long output", async () => assert.ok((await bash("seq 100000")).stdout.length > 1000));
await check("what runs before and after", async () => {
  const { tools } = await createBashTool({
    sandbox, destination: "/vercel/workspace",
    onBeforeBashCall: ({ command }) => ({ command: command.replace("no", "yes") }),
    onAfterBashCall: ({ result }) => ({ result: { ...result, stdout: result.stdout.trim() } }),
  });
  assert.equal((await tools.bash.execute({ command: "echo no" }, {})).stdout, "yes");
});
await check("stop", () => sandbox.stop());
await check("the next call resumes", async () => assert.equal((await bash("cat a/b.txt")).stdout, "ä"));
await sandbox.delete();
done("bash-tool");
