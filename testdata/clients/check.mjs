// Counts what a client of somebody else's does on the emulator: each check is a
// step that must not throw, nor return false.
import assert from "node:assert/strict";

let passed = 0;
const failed = [];

export { assert };

export async function check(name, step) {
  try {
    assert.notEqual(await step(), false);
    passed++;
  } catch (error) {
    failed.push(name);
    console.error(`${name}: ${error?.stack ?? error}`, error?.json ?? error?.cause ?? "");
  }
}

// done prints the count, and fails for each failure but those that are the client's own.
export function done(name, ...own) {
  console.log(`${name}: ${passed} of ${passed + failed.length}`);
  process.exit(failed.sort().join() === own.sort().join() ? 0 : 1);
}

// until asks again while a server starts.
export async function until(ask) {
  for (let tries = 0; ; tries++) {
    try {
      return await ask();
    } catch (error) {
      if (tries === 100) throw error;
      await new Promise((next) => setTimeout(next, 100));
    }
  }
}
