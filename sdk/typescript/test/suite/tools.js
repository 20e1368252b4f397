// Tools for models while connections are cut.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Tools } from "../../dist/index.js";
import { directory, s, until } from "../lib/suite.js";

test("a_call_that_is_cut_is_done_once", async () => {
  const tools = new Tools(s.spool, { cwd: await directory() });
  const run = await s.spool.run("cat; echo end", { stdin: true });
  const lines = Array.from({ length: 12 }, (_, i) => `line ${i}\n`);
  await tools.call("python", { code: "n = 0" });
  for (const [i, text] of lines.entries()) {
    const match = { until: "match", match: `^line ${i}$`, wait_ms: 50_000 };
    const typed = await tools.call("send_input", { run: run.id, text, eof: text === lines.at(-1), ...match });
    assert.ok(typed.text.includes(text.trim()), typed.text);
    const counted = await tools.call("python", { code: "n += 1\nn", wait_ms: 50_000 });
    assert.equal(counted.text.trim().split(/\s/).at(-1), String(i + 1), counted.text);
  }
  assert.equal(await run.text(), `${lines.join("")}end\n`);
  await tools.close();
});

test("a_signal_of_a_tool_that_is_cut_comes_once", async () => {
  const run = await s.spool.run("n=0; trap 'n=$((n+1)); echo $n' USR1; echo ready; while :; do read x; done", { stdin: true });
  await until(run, "ready");
  for (let i = 1; i <= 8; i++) {
    await s.spool.tools.call("stop_run", { run: run.id, how: "SIGUSR1", wait_ms: 0 });
    assert.equal(await until(run, `\n${i}\n`), `ready\n${Array.from({ length: i }, (_, k) => `${k + 1}\n`).join("")}`);
  }
  await run.kill();
});
