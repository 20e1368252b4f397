// What the cases of the suite use: the real server, behind a proxy that cuts connections.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";

import * as sdk from "../../dist/node.js";
import { startProxy } from "./proxy.js";
import { startServer } from "./server.js";

// s is the server of the cases. `spool` talks to it through the proxy, and `direct` without: where a
// request that was cut and is sent again may find that it was done.
export const s = { server: undefined, proxy: undefined, spool: undefined, direct: undefined };

before(async () => {
  s.server = await startServer();
  s.proxy = await startProxy(Number(new URL(s.server.url).port));
  s.spool = new sdk.Spool({ url: s.proxy.url, token: s.server.token, reconnectMs: 120_000 });
  s.direct = new sdk.Spool(s.server);
});
after(async () => {
  s.proxy.close();
  await s.server.stop();
});

// unique returns an id, and the beginning of ids, that no other run of the server has.
export const unique = () => `sdk${randomBytes(8).toString("hex")}`;

// directory returns a new directory, which is deleted after the tests.
export async function directory() {
  const dir = await realpath(await mkdtemp(join(tmpdir(), "sp")));
  after(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

// collect reads the whole log by following it.
export async function collect(run) {
  const events = await gather(run.events());
  assert.deepEqual(
    events.map((e) => e.seq),
    events.map((_, i) => i + 1),
  );
  assert.equal(events.at(-1).kind, "closed");
  return events;
}

// gather returns what an iterator yields.
export async function gather(iterator) {
  const all = [];
  for await (const each of iterator) all.push(each);
  return all;
}

// take returns the first values that an iterator yields.
export async function take(iterator, n) {
  const all = [];
  for await (const each of iterator) {
    all.push(each);
    if (all.length === n) break;
  }
  return all;
}

// summary describes the parts of events that tests compare.
export function summary(events) {
  return events.map((e) => {
    const what = `${e.seq} ${e.kind}`;
    if (e.kind === "output") return `${what} ${e.stream} ${JSON.stringify(sdk.textOf(e))}`;
    return e.kind === "exited" ? `${what} ${e.data.code}` : what;
  });
}

// output returns the text of a stream.
export function output(events, stream) {
  return events.filter((e) => e.kind === "output" && e.stream === stream).map(sdk.textOf).join("");
}

// until follows a run until its output contains a text.
export async function until(run, text) {
  let seen = "";
  for await (const event of run.events()) {
    if (event.kind === "output") seen += sdk.textOf(event);
    if (seen.includes(text)) return seen;
  }
  assert.fail(`the run closed without ${text}: ${seen}`);
}

// end kills a run and waits for its end.
export async function end(run) {
  await run.kill();
  await run.wait();
}

// finished starts a run with an id and waits for its end.
export async function finished(spool, id, options = {}) {
  const run = await spool.run(["true"], { id, ...options });
  await run.wait();
  return run;
}
