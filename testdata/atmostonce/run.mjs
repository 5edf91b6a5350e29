// Runs the commands of TestAtMostOnce with the official SDK, so that its count
// of lines that stand twice can be printed beside ours.
//
//   node run.mjs BASE_URL SANDBOX TOKEN TEAM PROJECT TOTAL
//
// The package is found through NODE_PATH. Prints how many commands it reported
// as run and as failed.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [base, name, token, teamId, projectId, total] = process.argv.slice(2);
const require = createRequire(import.meta.url);
const entry = require.resolve("@vercel/sandbox");
const { Sandbox } = await import(pathToFileURL(entry).href);

const rewritten = (url, init) => fetch(String(url).replace("https://vercel.com/api", base), { ...init, dispatcher: undefined });
const sandbox = await Sandbox.get({ name, token, teamId, projectId, fetch: rewritten });
let ran = 0, failed = 0, next = 0;
const worker = async () => {
  while (next < Number(total)) {
    const line = `line-${String(next++).padStart(4, "0")}`;
    try {
      await sandbox.runCommand("sh", ["-c", "echo $0 >> lines", line]);
      ran++;
    } catch {
      failed++;
    }
  }
};
const errors = console.error;
console.error = () => {}; // what the SDK prints of broken streams
await Promise.all(Array.from({ length: 8 }, worker));
console.error = errors;
console.log(JSON.stringify({ ran, failed }));
