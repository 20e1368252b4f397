// Python, tokens and the server of this user, while connections are cut.
import assert from "node:assert/strict";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import * as sdk from "../../dist/node.js";
import { end } from "../lib/server.js";
import { s } from "../lib/suite.js";

test("a_kernel_keeps_its_state", async () => {
  const kernel = await s.spool.kernel({ tools: { add: ({ a, b }) => a + b }, answer: (ask) => `answer to ${ask.prompt}` });
  (await kernel.exec("x = 20")).check();
  const cell = (await kernel.exec("print('out')\nx * 2 + 2")).check();
  assert.deepEqual([cell.result, cell.stdout], ["42", "out\n"]);
  assert.equal((await kernel.exec("tool.add(a=20, b=22)")).check().result, "42");
  assert.equal((await kernel.exec("input('name? ')")).check().result, "'answer to name? '");
  const failed = await kernel.exec("1/0");
  assert.equal(failed.error.name, "ZeroDivisionError");
  assert.throws(() => failed.check(), sdk.RunFailed);
  await kernel.stop();
});

test("a_sandbox_computes", async () => {
  const box = await s.spool.box();
  assert.equal((await box.exec("sum(range(10))")).check().result, "45");
  await box.stop();
});

test("a_wrong_token_is_refused", async () => {
  await assert.rejects(new sdk.Spool({ url: s.server.url, token: "wrong" }).server(), sdk.Unauthenticated);
});

test("the_server_of_this_user_starts_once", async () => {
  const state = await mkdtemp(join(tmpdir(), "sp"));
  const [one, two] = await Promise.all([sdk.local({ state }), sdk.local({ state })]);
  const run = await one.run("echo $HOME");
  assert.equal(await run.text(), `${process.env.HOME}\n`);
  assert.equal((await two.find(run.id.slice(0, 12))).id, run.id);
  await end(state);
  assert.equal(await (await two.run("echo again")).text(), "again\n"); // the server was started again
  s.server.forget(state);
});
