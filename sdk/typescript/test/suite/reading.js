// The cases of the suite of Go backends that read logs, by the same names, while connections are
// cut: nothing is lost, nothing comes twice.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import * as sdk from "../../dist/node.js";
import { collect, directory, gather, output, s, summary, until } from "../lib/suite.js";

const cuts = 500;

// pages reads a log in pages.
async function pages(run, maxBytes, after = 0) {
  const events = [];
  for (;;) {
    const page = await run.read({ after, maxBytes, waitMs: 60_000 });
    events.push(...page.events);
    after = page.next;
    if (page.info.state === "closed" && after >= page.info.last) return events;
  }
}

test("streams_output", async () => {
  const run = await s.spool.run("echo one; read x; echo two; read x; echo three; echo err >&2; exit 3", { stdin: true });
  for (const line of ["one\n", "two\n"]) {
    await until(run, line);
    await run.stdin.write("\n");
  }
  assert.equal(await run.text({ streams: ["stdout"] }), "one\ntwo\nthree\n");
  assert.equal(await run.text({ streams: ["stderr"] }), "err\n");
  assert.deepEqual(await run.wait(), { kind: "exited", code: 3 });
});

test("pushes_events", async () => {
  const run = await s.spool.run("printf 'event output\\n'; read x; printf 'event err\\n' >&2; exit 7", { stdin: true });
  const events = [];
  for await (const event of run.events()) {
    events.push(event);
    if (event.seq === 1) await run.stdin.write("go on\n"); // what comes is pushed
  }
  const want = ['1 output stdout "event output\\n"', '2 output stderr "event err\\n"', "3 exited 7", "4 closed"];
  assert.deepEqual(summary(events), want);
});

test("replays_events_after_close", async () => {
  const run = await s.spool.run("echo a; echo b >&2; exit 3");
  const live = await collect(run);
  assert.deepEqual(await pages(run, 1), live);
  assert.deepEqual(await collect(run), live);
  assert.deepEqual(await gather(run.events({ after: 1 })), live.slice(1));
  assert.deepEqual(await gather(run.events({ after: live.at(-1).seq })), []);
});

test("preserves_queued_events_before_subscribe", async () => {
  const run = await s.spool.run("printf 'queued output\\n'");
  await run.wait(); // no reader has read so far
  assert.deepEqual(summary(await collect(run)), ['1 output stdout "queued output\\n"', "2 exited 0", "3 closed"]);
});

test("long_poll_waits_for_the_first_event", async () => {
  const run = await s.spool.run('read x; echo "$x"; read x', { stdin: true });
  const nothing = await run.read({ waitMs: 1 });
  assert.deepEqual([nothing.events, nothing.next], [[], 0]);
  const page = run.read({ waitMs: 60_000 });
  await run.stdin.write("hi\n");
  assert.equal(output((await page).events, "stdout"), "hi\n");
  await run.stdin.close();
  await collect(run);
  // A read with a cursor beyond the end of a finished log does not wait.
  assert.deepEqual((await run.read({ after: 2 ** 40, waitMs: 3_600_000 })).events, []);
});

test("pages_cover_the_log_without_holes", async () => {
  const run = await s.spool.run("i=0; while [ $i -lt 40 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done");
  const whole = await collect(run);
  for (const maxBytes of [1, 100, 5000, 1 << 20]) assert.deepEqual(await pages(run, maxBytes), whole);
});

test("random_bytes_arrive_identical", async () => {
  const file = join(await directory(), "data");
  const data = randomBytes(1 << 16);
  writeFileSync(file, data);
  for (const tty of [undefined, { rows: 24, cols: 80 }]) {
    const run = await s.spool.run(`${tty ? "stty raw -echo; " : ""}cat ${file}`, tty ? { tty } : {});
    assert.ok(data.equals(await run.output()));
    const chunks = (await collect(run)).filter((e) => e.kind === "output").map(sdk.bytesOf);
    assert.ok(data.equals(Buffer.concat(chunks)));
  }
});

test("stalled_reader_changes_nothing", async () => {
  const size = 8_000_000; // more than connections hold; a cut would wake the reader
  const run = await s.direct.run(`yes 0123456789012345678901234567890123456789012345678901234567890123 | head -c ${size}`);
  const stalled = run.events();
  let late = sdk.bytesOf((await stalled.next()).value).length;
  // While one reader is stuck on its first event, another sees the child write everything and exit.
  assert.equal((await run.output()).length, size);
  assert.equal((await run.wait()).kind, "exited");
  for await (const event of stalled) late += event.kind === "output" ? sdk.bytesOf(event).length : 0;
  assert.equal(late, size);
});

test("a_reader_of_a_removed_run_sees_one_gap", async () => {
  const run = await s.direct.run("yes 0123456789012345678901234567890123456789012345678901234567890123 | head -c 8000000");
  await run.wait();
  const { last } = run.latest;
  const first = await run.read({ maxBytes: 1 });
  const check = (event, from) => {
    if (event.kind === "truncated") assert.deepEqual([event.data.from, event.data.to, event.seq], [from, last, last]);
    else assert.equal(event.seq, from);
  };
  let seen = 0;
  let gaps = 0;
  for await (const event of run.events()) {
    if (seen === 0) await run.delete();
    check(event, seen + 1);
    if (event.kind === "truncated") gaps++;
    seen = event.seq;
  }
  assert.equal(seen, last);
  assert.ok(gaps <= 1);
  for (let after = first.next; after < last; ) { // a reader that asks for pages
    const page = await run.read({ after });
    assert.ok(page.events.length > 0);
    for (const event of page.events) {
      check(event, after + 1);
      after = event.seq;
    }
  }
});

test("what_is_said_is_as_new_as_the_last_event", async () => {
  for (let i = 0; i < 10; i++) {
    const run = await s.spool.run(["true"]);
    for (let state; state !== "closed"; ) {
      const stat = await run.info();
      const page = await run.read({ after: 1 });
      for (const info of [stat, page.info]) {
        assert.ok(info.last < 1 || info.outcome, "it has an outcome after the first event");
        assert.ok(info.last < 2 || info.state === "closed", "it is closed after the second event");
      }
      state = page.info.state;
    }
  }
});

// The last case: together with those before there are enough cuts.
test("every_event_comes_once", async () => {
  const want = Array.from({ length: 500 }, (_, i) => `line ${i} of many\n`).join("");
  const run = await s.spool.run("i=0; while [ $i -lt 500 ]; do echo line $i of many; i=$((i+1)); done");
  await run.wait();
  s.proxy.least = 150; // most of the answers begin, so that the client does not wait before it tries again
  s.proxy.most = 2 * want.length; // all of it may be one event
  do {
    let seq = 0;
    let text = "";
    for await (const event of run.events()) {
      assert.equal(event.seq, ++seq);
      if (event.kind === "output") text += sdk.textOf(event);
    }
    assert.ok(text === want, `run ${run.id} has other output`);
    assert.ok((await run.text()) === want, `run ${run.id} has other output`);
  } while (s.proxy.cuts < cuts);
});
