// The cases of the test suite of Go backends, by the same names, while connections are cut:
// nothing is lost, nothing comes twice.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import * as sdk from "../dist/node.js";
import { startProxy } from "./lib/proxy.js";
import { end, startServer } from "./lib/server.js";

const cuts = 500;

let server;
let proxy;
let spool;
before(async () => {
  server = await startServer();
  proxy = await startProxy(Number(new URL(server.url).port));
  spool = new sdk.Spool({ url: proxy.url, token: server.token });
});
after(() => {
  proxy.close();
  return server.stop();
});

// surely repeats a request that the client does not repeat, because it may be done twice.
async function surely(request) {
  for (;;) {
    try {
      return await request();
    } catch (error) {
      if (!(error instanceof sdk.ConnectionLost)) throw error;
    }
  }
}

async function collect(run) {
  const events = [];
  for await (const event of run.events()) events.push(event);
  assert.deepEqual(
    events.map((e) => e.seq),
    events.map((_, i) => i + 1),
  );
  assert.equal(events.at(-1).kind, "closed");
  return events;
}

const unique = () => `sdk${randomBytes(8).toString("hex")}`;

test("exec_process_starts_and_exits", async () => {
  const run = await spool.run(["true"]);
  assert.deepEqual(await run.wait(), { kind: "exited", code: 0 });
  assert.deepEqual((await collect(run)).slice(-2).map((e) => e.kind), ["exited", "closed"]);
  assert.match(String(run), /exited 0/);
});

test("streams_output", async () => {
  const run = await spool.run("echo out; echo err >&2");
  assert.equal(await run.text({ streams: ["stdout"] }), "out\n");
  assert.equal(await run.text({ streams: ["stderr"] }), "err\n");
});

test("pushes_events", async () => {
  const fifo = join(await mkdtemp(join(tmpdir(), "sp")), "fifo");
  const run = await spool.run(`mkfifo ${fifo}; echo one; cat ${fifo}`);
  let text = "";
  for await (const event of run.events()) {
    if (event.kind !== "output") continue;
    if (text === "") writeFileSync(fifo, "two\n");
    text += sdk.textOf(event);
  }
  assert.equal(text, "one\ntwo\n");
});

test("replays_events_after_close", async () => {
  const run = await spool.run("echo hello");
  await run.wait();
  const first = await collect(run);
  assert.deepEqual(await collect(run), first);
  const rest = [];
  for await (const event of run.events({ after: first.at(-1).seq })) rest.push(event);
  assert.deepEqual(rest, []);
});

test("write_then_read_without_tty", async () => {
  const run = await spool.run(["cat"], { stdin: true });
  await run.stdin.write("hello\n");
  await run.stdin.write(new TextEncoder().encode("world\n"));
  await run.stdin.close();
  assert.equal(await run.text(), "hello\nworld\n");
});

test("rejects_write_without_pipe_stdin", async () => {
  const run = await spool.run(["sleep", "60"]);
  await assert.rejects(run.stdin.write("x"), sdk.InputClosed);
  await run.kill();
});

test("start_errors_are_typed", async () => {
  await assert.rejects(spool.run(["no-such-program-here"]), (error) => error instanceof sdk.ProgramNotFound && /hint:/.test(error.message));
  await assert.rejects(spool.run(["true"], { cwd: "/no/such/directory" }), sdk.StartFailed);
});

test("repeated_start_id_is_one_run", async () => {
  const id = unique();
  assert.equal((await spool.run(["true"], { id })).id, (await spool.run(["true"], { id })).id);
  await assert.rejects(spool.run(["false"], { id }), sdk.Exists);
});

test("signals_are_128_plus_n", async () => {
  const run = await spool.run(["sleep", "60"]);
  await surely(() => run.signal("SIGUSR1")).catch((error) => assert.ok(error instanceof sdk.Ended)); // the first of two did it
  assert.deepEqual(await run.wait(), { kind: "exited", code: 138, signal: "SIGUSR1" });
});

test("stop_leaves_no_process", async () => {
  const run = await spool.run("setsid sleep 987654 & echo $!; wait");
  let child;
  for await (const event of run.events()) {
    if (event.kind === "output") {
      child = Number(sdk.textOf(event));
      break;
    }
  }
  await run.stop();
  await run.wait();
  const stat = `/proc/${child}/stat`;
  assert.ok(!existsSync(stat) || / Z /.test(readFileSync(stat, "utf8"))); // one that nobody has reaped does not run
});

test("finds_runs_by_prefix_and_name", async () => {
  const name = unique();
  const run = await spool.run(["sleep", "60"], { name, labels: { team: name } });
  assert.equal((await spool.find(name)).id, run.id);
  assert.equal((await spool.find(run.id.slice(0, 20))).id, run.id);
  const found = [];
  for await (const r of spool.runs({ label: `team:${name}` })) found.push(r.id);
  assert.deepEqual(found, [run.id]);
  await run.kill();
});

test("removes_finished_runs_only", async () => {
  const run = await spool.run(["sleep", "60"]);
  await assert.rejects(run.delete(), sdk.Conflict);
  await run.kill();
  await run.wait();
  await run.delete();
  await assert.rejects(run.info(), sdk.NotFound);
});

test("unknown_run_is_not_found", async () => {
  await assert.rejects(spool.get("nosuchrun"), sdk.NotFound);
  await assert.rejects(spool.find("nosuchrun"), sdk.NotFound);
});

test("random_bytes_arrive_identical", async () => {
  const file = join(await mkdtemp(join(tmpdir(), "sp")), "data");
  const data = randomBytes(1 << 15);
  writeFileSync(file, data);
  const run = await spool.run(["cat", file]);
  assert.ok(data.equals(await run.output()));
  const chunks = (await collect(run)).filter((e) => e.kind === "output").map(sdk.bytesOf);
  assert.ok(data.equals(Buffer.concat(chunks)));
});

test("many_at_once", async () => {
  const texts = await Promise.all(Array.from({ length: 64 }, async (_, i) => (await spool.run(`echo ${i}`)).text()));
  assert.deepEqual(texts, Array.from({ length: 64 }, (_, i) => `${i}\n`));
});

test("an_aborted_call_does_not_stop_the_run", async () => {
  const run = await spool.run(["sleep", "60"]);
  const abort = new AbortController();
  const waiting = run.wait({ signal: abort.signal });
  abort.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  assert.equal((await run.info()).state, "running");
  await run.kill();
});

test("check_shows_the_end_of_the_output", async () => {
  const run = await spool.run("echo what went wrong >&2; exit 3");
  await assert.rejects(run.check(), /exited 3[^]*what went wrong/);
});

test("a_timeout_ends_a_run", async () => {
  const outcome = await (await spool.run(["sleep", "60"], { timeoutMs: 100 })).wait();
  assert.match(outcome.reason, /timed out/);
});

test("a_kernel_keeps_its_state", async () => {
  const kernel = await spool.kernel({ tools: { add: ({ a, b }) => a + b }, answer: (ask) => `answer to ${ask.prompt}` });
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
  const box = await spool.box();
  assert.equal((await box.exec("sum(range(10))")).check().result, "45");
  await box.stop();
});

test("a_wrong_token_is_refused", async () => {
  await assert.rejects(new sdk.Spool({ url: server.url, token: "wrong" }).server(), sdk.Unauthenticated);
});

test("the_server_of_this_user_starts_once", async () => {
  const state = await mkdtemp(join(tmpdir(), "sp"));
  const [one, two] = await Promise.all([sdk.local({ state }), sdk.local({ state })]);
  const run = await one.run("echo $HOME");
  assert.equal(await run.text(), `${process.env.HOME}\n`);
  assert.equal((await two.find(run.id.slice(0, 12))).id, run.id);
  await end(state);
  assert.equal(await (await two.run("echo again")).text(), "again\n"); // the server was started again
  server.forget(state);
});

test("input_arrives_once", async () => {
  const run = await spool.run(["cat"], { stdin: true });
  const sent = [];
  for (let i = 0; i < 60; i++) {
    const piece = randomBytes(Math.floor(Math.random() * 2000));
    await run.stdin.write(piece);
    sent.push(piece);
  }
  await run.stdin.close();
  assert.ok(Buffer.concat(sent).equals(await run.output()));
});

// The last case: together with those before there are enough cuts.
test("every_event_comes_once", async () => {
  const want = Array.from({ length: 2000 }, (_, i) => `line ${i} of many\n`).join("");
  const run = await spool.run("i=0; while [ $i -lt 2000 ]; do echo line $i of many; i=$((i+1)); done");
  do {
    let seq = 0;
    let text = "";
    for await (const event of run.events()) {
      assert.equal(event.seq, ++seq);
      if (event.kind === "output") text += sdk.textOf(event);
    }
    assert.ok(text === want, `run ${run.id} has other output`);
    assert.ok((await run.text()) === want, `run ${run.id} has other output`);
  } while (proxy.cuts < cuts);
});
