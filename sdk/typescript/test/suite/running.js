// The cases of the suite of Go backends that start runs and act on them, by the same names, while
// connections are cut.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";

import * as sdk from "../../dist/node.js";
import { collect, directory, end, finished, gather, output, s, summary, unique, until } from "../lib/suite.js";

const size = { rows: 24, cols: 80 };
const unknownBlob = `sha256:${"0".repeat(64)}`;

test("exec_process_starts_and_exits", async () => {
  const run = await s.spool.run(["true"]);
  assert.deepEqual(await run.wait(), { kind: "exited", code: 0 });
  assert.deepEqual(summary(await collect(run)), ["1 exited 0", "2 closed"]);
  const info = await run.info();
  assert.deepEqual([info.state, info.last, info.outcome], ["closed", 2, { kind: "exited", code: 0 }]);
  assert.match(String(run), /exited 0/);
});

test("write_then_read", async () => {
  const run = await s.spool.run("printf 'ready\\n'; read line; printf 'got:%s\\n' \"$line\"", { tty: size });
  await until(run, "ready");
  await run.stdin.write("hello\n");
  assert.equal((await run.wait()).code, 0);
  assert.ok(output(await collect(run), "pty").includes("got:hello\r\n"));
});

test("write_then_read_without_tty", async () => {
  const run = await s.spool.run("read line; printf 'from-stdin:%s\\n' \"$line\"; cat", { stdin: true });
  await run.stdin.write("hello\n");
  await run.stdin.write(new TextEncoder().encode("world\n"));
  await run.stdin.close();
  assert.equal(await run.text(), "from-stdin:hello\nworld\n");
});

test("rejects_write_without_pipe_stdin", async () => {
  const run = await s.spool.run("if read line; then echo unexpected; else echo eof; fi; exec sleep 1000");
  await until(run, "eof");
  await assert.rejects(run.stdin.write("hello\n"), sdk.InputClosed);
  await end(run);
});

test("start_errors_are_typed", async () => {
  const plain = join(await directory(), "plain");
  writeFileSync(plain, "not a program", { mode: 0o644 });
  for (const [spec, kind, code, says] of [
    [{}, sdk.StartFailed, "start_invalid", /argv must not be empty/],
    [{ argv: ["/bin/echo", "a\0b"] }, sdk.StartFailed, "start_invalid", /nul byte/],
    [{ id: "../x", argv: ["/bin/true"] }, sdk.StartFailed, "start_invalid", /run id "..\/x" has other characters/],
    [{ argv: ["no-such-program-here"] }, sdk.ProgramNotFound, "start_not_found", /no such program in the PATH/],
    [{ argv: [plain] }, sdk.StartFailed, "start_not_executable", /the file is not executable/],
    [{ argv: ["/bin/true"], cwd: "/no/such/directory" }, sdk.StartFailed, "start_bad_cwd", /must exist on the machine/],
    [{ argv: ["/bin/true"], cwd: plain }, sdk.StartFailed, "start_bad_cwd", /not a directory/],
    [{ engine: "teapot", argv: ["/bin/true"] }, sdk.StartFailed, "start_unsupported", /no engine "teapot"/],
  ]) {
    const id = unique();
    const start = s.spool.start({ id, ...spec });
    await assert.rejects(start, (error) => {
      assert.ok(error instanceof kind && error.code === code && says.test(error.message), `${error.code}: ${error.message}`);
      return true;
    });
    await assert.rejects(s.spool.get(id), sdk.NotFound);
  }
});

test("repeated_start_id_is_one_run", async () => {
  const spec = { id: unique(), stdin: true };
  const first = await s.spool.run("read line; echo done", spec);
  const again = await s.spool.run("read line; echo done", spec);
  assert.ok(first.latest.pid > 0 && first.latest.pid === again.latest.pid);
  await again.stdin.close();
  await collect(first);
});

test("a_start_waits_for_the_end", async () => {
  const spec = { id: unique(), argv: ["/bin/sh", "-c", "(sleep 0.2; echo two) & echo one; exit 3"] };
  const start = (json, wait_ms) => s.spool.http.json("POST", "/v1/runs", { json, query: { wait_ms } });
  for (let i = 0; i < 2; i++) {
    const info = await start(spec, 50_000);
    assert.deepEqual([info.id, info.state, info.outcome.code], [spec.id, "closed", 3]);
    assert.equal(await (await s.spool.get(spec.id)).text(), "one\ntwo\n");
  }
  const long = { id: unique(), argv: ["sleep", "1000"] };
  const live = await start(long, 100);
  assert.equal(live.state, "running");
  assert.equal((await start(long, 100)).pid, live.pid);
  await (await s.spool.get(long.id)).kill();
});

test("another_run_of_a_taken_id_exists", async () => {
  const id = unique();
  await finished(s.spool, id);
  assert.equal((await s.spool.run(["true"], { id })).id, id);
  await assert.rejects(s.spool.run(["false"], { id }), sdk.Exists);
});

test("repeated_input_id_is_applied_once", async () => {
  const run = await s.spool.run(["cat"], { stdin: true });
  for (let i = 0; i < 3; i++) {
    const body = new TextEncoder().encode("once\n");
    const receipt = await s.spool.http.json("POST", `${run.path}/input`, { body, query: { id: "same" } });
    assert.ok(i === 0 || receipt.repeated); // the first may have been cut and sent again
  }
  await run.stdin.close();
  assert.equal(await run.text(), "once\n");
});

test("repeated_control_id_is_done_once", async () => {
  const script = "n=0; trap 'n=$((n+1)); echo $n' USR1; trap 'echo end $n; exit' USR2; echo ready; while :; do read x; done";
  const run = await s.spool.run(script, { stdin: true });
  const signal = (name, id) => run.control("signal", { signal: name, id });
  let text = "";
  for await (const event of run.events()) {
    if (event.kind === "output") text += sdk.textOf(event);
    if (text === "ready\n") {
      await assert.rejects(signal("SIGNOTHING", "same"), sdk.InvalidRequest);
      for (let i = 0; i < 3; i++) await signal("SIGUSR1", "same"); // what was refused may be repeated
    } else if (text === "ready\n1\n") {
      await run.signal("SIGUSR1");
    } else if (text === "ready\n1\n2\n") {
      await signal("SIGUSR2", "last");
    }
  }
  assert.equal(text, "ready\n1\n2\nend 2\n");
  await signal("SIGUSR2", "last"); // it ended the run
  await assert.rejects(run.signal("SIGUSR2"), sdk.Ended);
});

test("close_stdin_ends_the_reader", async () => {
  const run = await s.spool.run(["wc", "-c"], { stdin: true });
  for (let i = 0; i < 3; i++) await run.stdin.write(new Uint8Array(100_000));
  await run.stdin.close();
  assert.equal((await run.text()).trim(), "300000");
  await assert.rejects(run.stdin.write("x"), sdk.InputClosed);
});

test("exited_and_closed_are_two_facts", async () => {
  // The background child outlives its parent and writes when told to.
  const fifo = join(await directory(), "go");
  execFileSync("mkfifo", [fifo]);
  const run = await s.spool.run(`echo now; (read x < ${fifo}; echo late) & exit 5`);
  for await (const event of run.events()) {
    if (event.kind === "exited") break;
  }
  assert.equal((await run.info()).state, "exited");
  writeFileSync(fifo, "x\n");
  assert.deepEqual(summary(await collect(run)), ['1 output stdout "now\\n"', "2 exited 5", '3 output stdout "late\\n"', "4 closed"]);
});

test("signals_are_128_plus_n", async () => {
  for (const tty of [undefined, size]) {
    const run = await s.spool.run("echo ready; exec sleep 1000", tty ? { tty } : {});
    await until(run, "ready");
    await run.signal("SIGHUP");
    assert.deepEqual(await run.wait(), { kind: "exited", code: 129, signal: "SIGHUP" });
    await assert.rejects(run.signal("SIGHUP"), sdk.Ended);
    await run.kill();
  }
});

test("stop_leaves_no_process", async () => {
  // The leader ignores SIGTERM; children escape by setsid and double fork.
  const mark = unique();
  const script = `trap '' TERM
for i in 1 2 3; do setsid bash -c 'exec -a ${mark} sleep 1000' & done
(setsid bash -c '(exec -a ${mark} sleep 1000) & exit 0' &)
echo ready; while :; do sleep 1; done`;
  const run = await s.spool.run(["bash", "-c", script], { limits: { grace_ms: 50 } });
  await until(run, "ready");
  await run.stop();
  assert.deepEqual(await run.wait(), { kind: "exited", code: 137, signal: "SIGKILL" });
  const left = execFileSync("ps", ["-eo", "stat,args"], { encoding: "utf8" }).split("\n");
  assert.deepEqual(left.filter((line) => !line.startsWith("Z") && line.includes(` ${mark} `)), []);
});

test("kill_passes_input_that_waits", async () => {
  const run = await s.spool.run("echo ready; exec sleep 1000", { stdin: true });
  await until(run, "ready");
  const abort = new AbortController();
  const direct = await s.direct.get(run.id); // so that what fills the queues is not cut
  const fill = async () => {
    for (;;) await direct.stdin.write(new Uint8Array(256 << 10), { signal: abort.signal });
  };
  const filled = assert.rejects(fill);
  await run.kill();
  assert.deepEqual(await run.wait(), { kind: "exited", code: 137, signal: "SIGKILL" });
  abort.abort();
  await filled;
});

test("resize_is_seen_by_the_child", async () => {
  const first = { rows: 33, cols: 101 };
  const second = { rows: 50, cols: 160 };
  const run = await s.spool.run("stty size; read x; stty size", { tty: first });
  await until(run, "33 101");
  const sizes = async () => [(await run.info()).size, run.latest.first_size];
  assert.deepEqual(await sizes(), [first, first]);
  for (let i = 0; i < 2; i++) await run.resize(second.rows, second.cols); // the second changes nothing
  assert.deepEqual(await sizes(), [second, first]);
  await run.stdin.write("go\n");
  const events = await collect(run);
  assert.ok(output(events, "pty").includes("50 160"));
  const resized = events.filter((e) => e.kind === "resized").map(({ data }) => ({ rows: data.rows, cols: data.cols, was: data.was }));
  assert.deepEqual(resized, [{ ...second, was: first }]);
  assert.deepEqual(await sizes(), [second, first]);
  const piped = await s.spool.run(["cat"], { stdin: true });
  await assert.rejects(piped.resize(1, 1), sdk.Unsupported);
  await end(piped);
});

test("unknown_run_is_not_found", async () => {
  await assert.rejects(s.spool.find("nosuchrun"), sdk.NotFound);
  for (const id of ["nobody", "../x", "UPPER", "a-b", "a".repeat(129)]) {
    await assert.rejects(s.spool.get(id), sdk.NotFound, id);
    const run = new sdk.Run(s.spool.http, { id: encodeURIComponent(id) });
    for (const call of [
      () => run.info(),
      () => run.read(),
      () => run.wait(),
      () => run.text(),
      () => run.stdin.close(),
      () => run.interrupt(),
      () => run.kill(),
      () => run.blob(unknownBlob),
      () => gather(run.events()),
    ]) {
      await assert.rejects(call, sdk.NotFound, id);
    }
  }
});

test("unknown_blob_is_not_found", async () => {
  const run = await finished(s.spool, unique());
  await assert.rejects(run.blob(unknownBlob), sdk.NotFound);
  for (const digest of ["nonsense", "sha256:..x", `${unknownBlob}0`]) await assert.rejects(run.blob(digest), sdk.InvalidRequest);
});

test("errors_of_send", async () => {
  const run = await s.spool.run("echo ready; read x", { stdin: true });
  await until(run, "ready");
  const kernel = new sdk.Kernel(s.spool.http, run.latest, undefined, {});
  const agent = new sdk.Agent(s.spool.http, run.latest, undefined, {});
  const song = () => s.spool.http.json("POST", `${run.path}/input`, { json: { kind: "song", id: unique(), data: {} } });
  for (const send of [() => kernel.submit("1"), () => agent.submit("hello"), () => run.answer(1, "x"), song]) {
    await assert.rejects(send, sdk.Unsupported);
  }
  await run.stdin.close();
  await run.wait();
  await assert.rejects(run.stdin.write("x"), sdk.InputClosed);
  await assert.rejects(run.stdin.close(), sdk.InputClosed);
  for (const send of [() => kernel.submit("1"), () => agent.submit("hello"), () => run.answer(1, "x")]) {
    await assert.rejects(send, sdk.InputClosed);
  }
});

test("errors_of_control", async () => {
  const tty = await s.spool.run("echo ready; read x", { tty: size });
  const piped = await s.spool.run("echo ready; read x", { stdin: true });
  for (const run of [tty, piped]) {
    await until(run, "ready");
    await assert.rejects(run.control("dance"), sdk.Unsupported);
    await assert.rejects(run.control("restart"), sdk.Unsupported);
    await assert.rejects(run.signal("SIGNOTHING"), sdk.InvalidRequest);
  }
  await assert.rejects(piped.resize(1, 1), sdk.Unsupported);
  await assert.rejects(tty.resize(0, 0), sdk.InvalidRequest);
  for (const run of [tty, piped]) {
    await end(run);
    await assert.rejects(run.interrupt(), sdk.Ended);
    await assert.rejects(run.signal("SIGHUP"), sdk.Ended);
    await assert.rejects(run.resize(1, 1), sdk.Ended);
    await run.stop();
    await run.kill();
  }
});

test("an_ended_context_is_its_cause", async () => {
  const run = await s.spool.run(["cat"], { stdin: true });
  const abort = new AbortController();
  abort.abort(new Error("the reader left"));
  await assert.rejects(run.read({ waitMs: 60_000, signal: abort.signal }), /the reader left/);
  await assert.rejects(gather(run.events({ signal: abort.signal })), /the reader left/);
  const later = new AbortController();
  const { signal } = later;
  const waiting = [run.wait({ signal }), gather(run.events({ signal }))].map((call) => assert.rejects(call, /it left later/));
  later.abort(new Error("it left later"));
  await Promise.all(waiting);
  assert.equal((await run.info()).state, "running"); // which is not stopped
  await end(run);
});

test("the_end_of_a_run_starts_its_notification", async () => {
  const told = join(await directory(), "told");
  execFileSync("mkfifo", [told]);
  const env = { PATH: process.env.PATH, TOLD: told, SECRET: "hidden" };
  const script = 'echo "$SPOOL_RUN|$SPOOL_STATUS|$SPOOL_EXIT_CODE|$SECRET" > "$TOLD"; echo told';
  const run = await s.spool.run("exit 3", { env, notify: ["/bin/sh", "-c", script] });
  assert.equal(await readFile(told, "utf8"), `${run.id}|exited 3|3|hidden\n`);
  const runs = await gather(s.spool.runs({ label: `spool.notify:${run.id}` }));
  assert.equal(runs.length, 1);
  assert.ok(!JSON.stringify(runs[0].latest).includes("hidden"));
  assert.equal(await runs[0].text(), "told\n");
});

test("env_values_are_not_kept", async () => {
  const run = await s.spool.run(`test \${#SECRET} -eq 7`, { env: { PATH: process.env.PATH, SECRET: "hunter2" } });
  assert.deepEqual(await run.wait(), { kind: "exited", code: 0 });
  assert.ok(!JSON.stringify([await run.info(), await collect(run)]).includes("hunter2"));
});

test("an_ended_run_has_a_ledger", async () => {
  const run = await s.spool.run('i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; read line; echo "got $line"', { stdin: true });
  assert.equal((await run.info()).ledger, undefined);
  await run.stdin.write("hello\n");
  await run.wait();
  const { ledger } = await run.info();
  assert.ok(ledger.processes.user_us + ledger.processes.system_us >= 1000);
  assert.deepEqual(ledger, { processes: ledger.processes, input_bytes: 6 });
  for (const listed of await gather(s.spool.runs({ prefix: run.id }))) assert.deepEqual(listed.latest.ledger, ledger);
});

test("a_limit_that_was_met_is_in_the_ledger", async () => {
  const lines = "i=0; while [ $i -lt 500 ]; do echo 0123456789; i=$((i+1)); done";
  for (const [script, limits, want] of [
    ["sleep 1000", { wall_ms: 50 }, ["timeout"]],
    ["sleep 1000", { idle_ms: 50 }, ["idle_timeout"]],
    [lines, { output_bytes: 2048 }, ["output_limit"]],
    ["true", { wall_ms: 3_600_000 }, undefined],
  ]) {
    const run = await s.spool.run(script, { limits });
    await run.wait();
    assert.deepEqual(run.latest.ledger.limits, want, script);
  }
});

test("many_at_once", async () => {
  const label = unique();
  const all = Array.from({ length: 64 }, (_, i) => i);
  const runs = await Promise.all(all.map(() => s.spool.run('read x; echo "$x"; exit 3', { stdin: true, labels: { many: label } })));
  assert.deepEqual(await s.spool.count({ live: true, label: `many:${label}` }), { running: 64 });
  await Promise.all(runs.map((run, i) => run.stdin.write(`run ${i}\n`)));
  const logs = await Promise.all(runs.map(async (run) => summary(await collect(run))));
  assert.deepEqual(logs, all.map((i) => [`1 output stdout "run ${i}\\n"`, "2 exited 3", "3 closed"]));
});

test("input_arrives_once", async () => {
  const run = await s.spool.run(["cat"], { stdin: true });
  let sent = "";
  for (let i = 0; i < 60; i++) {
    const piece = unique().repeat(1 + ((i * 7) % 50));
    await run.stdin.write(piece);
    sent += piece;
  }
  await run.stdin.close();
  assert.equal(await run.text(), sent);
});

test("an_aborted_call_does_not_stop_the_run", async () => {
  const run = await s.spool.run(["sleep", "60"]);
  const abort = new AbortController();
  const waiting = run.wait({ signal: abort.signal });
  abort.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  assert.equal((await run.info()).state, "running");
  await run.kill();
});

test("check_shows_the_end_of_the_output", async () => {
  const run = await s.spool.run("echo what went wrong >&2; exit 3");
  await assert.rejects(run.check(), /exited 3.*what went wrong/s);
});

test("a_timeout_ends_a_run", async () => {
  const outcome = await (await s.spool.run(["sleep", "60"], { timeoutMs: 100 })).wait();
  assert.match(outcome.reason, /timed out/);
});
