// The snippets of the documentation run.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { end } from "./lib/server.js";

const page = process.env.SPOOL_TYPESCRIPT_PAGE ?? new URL("../../../docs/typescript.md", import.meta.url).pathname;

test("snippets_run", async () => {
  const blocks = [...readFileSync(page, "utf8").matchAll(/```js\n(.*?)```/gs)].map((m) => m[1]);
  assert.ok(blocks.length >= 4);
  const state = await mkdtemp(join(tmpdir(), "sp"));
  const file = new URL(`snippets-${process.pid}.mjs`, import.meta.url).pathname;
  writeFileSync(file, `${blocks.join("\n").replace("@spool-run/sdk/node", "../dist/node.js")}\nprocess.exit();\n`);
  const done = spawnSync(process.execPath, [file], { env: { ...process.env, SPOOL_STATE: state }, encoding: "utf8" });
  await end(state);
  assert.equal(done.status, 0, done.stderr);
  for (const want of ["hello\n", "exited 3", "42\n", "6\n", "'yes'", "true closed", "true 1 failed", "{ closed: 1 }", "'run_command'", "100000\n"]) assert.ok(done.stdout.includes(want), done.stdout);
});
