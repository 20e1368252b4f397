// The cases of the suite of Go backends about many runs, by the same names, while connections are
// cut.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import * as sdk from "../../dist/node.js";
import { directory, end, finished, gather, s, take, unique, until } from "../lib/suite.js";

// ids returns the ids of the runs that a query selects, without the beginning that all have.
const ids = async (begin, query, n = Infinity) => {
  const runs = await take(s.spool.runs({ ...query, prefix: begin + (query.prefix ?? "") }), n);
  return runs.map((run) => run.id.slice(begin.length));
};

// tick waits until the clock of events has gone on, and returns the time.
async function tick() {
  const now = Date.now();
  while (Date.now() < now + 3) await new Promise((resolve) => setTimeout(resolve, 1));
  return new Date();
}

test("finds_runs_by_prefix_and_name", async () => {
  for (const [id, name] of [
    ["xyz1one", "job"],
    ["xyz2two", "job"],
    ["uvw3three", "xyz1"], // the beginning of another's id
    ["ghi4four", "ghi4"], // the beginning of its own id
    ["jkl5five", "xyz2two"], // another's whole id
    ["mno6six", "My job: #1"], // no id at all
    ["pqr7seven", "uv"], // too short to contest another's id
  ]) {
    await finished(s.spool, id, { name });
  }
  for (const [text, want] of [
    ["xyz1one", "xyz1one"],
    ["xyz1o", "xyz1one"],
    ["job", "xyz2two"], // the newest of that name
    ["xyz", sdk.Ambiguous],
    ["xyz1", sdk.Ambiguous],
    ["uv", "pqr7seven"],
    ["ghi4", "ghi4four"],
    ["xyz2two", "xyz2two"],
    ["My job: #1", "mno6six"],
    ["My job", sdk.NotFound],
    ["zzz", sdk.NotFound],
    ["--help", sdk.NotFound],
  ]) {
    if (typeof want === "string") assert.equal((await s.spool.find(text)).id, want, text);
    else await assert.rejects(s.spool.find(text), want, text);
  }
});

test("each_filter_selects", async () => {
  const begin = unique();
  const before = await tick();
  await finished(s.spool, `${begin}aone`, { name: "x" });
  await finished(s.spool, `${begin}atwo`);
  const between = await tick();
  const labels = { color: "red", size: "big" };
  const live = await s.spool.run("read x", { id: `${begin}bthree`, name: "x", stdin: true, labels });
  for (const [query, want, n] of [
    [{}, ["bthree", "atwo", "aone"]],
    [{ oldest: true }, ["aone", "atwo", "bthree"]],
    [{ prefix: "a" }, ["atwo", "aone"]],
    [{ prefix: "aone" }, ["aone"]],
    [{ name: "x" }, ["bthree", "aone"]],
    [{ engine: "process" }, ["bthree", "atwo", "aone"]],
    [{ engine: "kernel" }, []],
    [{ state: "running" }, ["bthree"]],
    [{ state: "exited" }, []],
    [{ state: "closed" }, ["atwo", "aone"]],
    [{ live: true }, ["bthree"]],
    [{ live: true, state: "closed" }, []],
    [{ since: before }, ["bthree", "atwo", "aone"]],
    [{ since: between }, ["bthree"]],
    [{ before: between }, ["atwo", "aone"]],
    [{ before }, []],
    [{ outcome: "exited" }, ["atwo", "aone"]],
    [{ outcome: "failed" }, []],
    [{ label: "color:red" }, ["bthree"]],
    [{ label: ["color:red", "size:small"] }, []],
    [{ label: "color" }, ["bthree"]],
    [{ label: ["color", "size"] }, ["bthree"]],
    [{ label: ["color", "shape"] }, []],
    [{ nameGlob: "?" }, ["bthree", "aone"]],
    [{ nameGlob: "x*" }, ["bthree"], 1],
    [{ nameGlob: "[w-y]", label: "size" }, ["bthree"]],
    [{ nameGlob: "y*" }, []],
    [{ pageSize: 2 }, ["bthree", "atwo"], 2],
    [{ pageSize: 2, oldest: true }, ["aone", "atwo"], 2],
    [{ pageSize: 1, prefix: "a" }, ["atwo"], 1],
    [{ pageSize: 10 }, ["bthree", "atwo", "aone"]],
  ]) {
    assert.deepEqual(await ids(begin, query, n), want, JSON.stringify(query));
  }
  await end(live);
  assert.deepEqual(await ids(begin, { state: "closed" }, 1), ["bthree"]);
});

test("pages_of_a_list_are_stable_while_runs_start", async () => {
  const begin = unique();
  const known = Array.from({ length: 9 }, (_, i) => `${begin}p${i}`);
  for (const id of known) await finished(s.spool, id);
  for (const oldest of [false, true]) {
    for (const pageSize of [1, 4, known.length]) {
      const got = [];
      for await (const run of s.spool.runs({ prefix: begin, oldest, pageSize })) {
        got.push(run.id);
        if (got.length < 3) await Promise.all([0, 1].map(() => s.spool.run(["true"], { id: `${begin}q${unique()}` })));
      }
      assert.equal(new Set(got).size, got.length);
      assert.deepEqual(got.filter((id) => known.includes(id)), oldest ? known : known.toReversed());
    }
  }
});

test("runs_are_counted_by_state", async () => {
  const begin = unique();
  await finished(s.spool, `${begin}aone`, { name: "x" });
  await finished(s.spool, `${begin}atwo`, { name: "y" });
  const live = await s.spool.run("read x", { id: `${begin}bthree`, name: "x", stdin: true });
  for (const query of [{}, { live: true }, { state: "closed" }, { state: "exited" }, { name: "x" }, { name: "none" }, { nameGlob: "?" }, { label: "none" }]) {
    const selects = { ...query, prefix: begin };
    const want = {};
    for await (const run of s.spool.runs(selects)) want[run.latest.state] = (want[run.latest.state] ?? 0) + 1;
    assert.deepEqual(await s.spool.count(selects), want, JSON.stringify(query));
  }
  await assert.rejects(s.spool.count({ state: "asleep" }), sdk.InvalidRequest);
  await end(live);
});

test("filters_that_make_no_sense_are_invalid", async () => {
  for (const query of [{ state: "asleep" }, { pageSize: -1 }, { outcome: "maybe" }, { nameGlob: "[a" }]) {
    await assert.rejects(gather(s.spool.runs(query)), sdk.InvalidRequest, JSON.stringify(query));
  }
  for (const cursor of ["nonsense", "zz.../x"]) {
    await assert.rejects(s.spool.http.json("GET", "/v1/runs", { query: { cursor } }), sdk.InvalidRequest);
  }
});

test("a_watcher_learns_of_every_change", async () => {
  const mark = unique();
  const labels = { watched: mark };
  const label = `watched:${mark}`;
  const cat = (options = { labels }) => s.spool.run("echo hi; cat", { stdin: true, ...options });
  const before = await cat();
  const done = await s.spool.run("exit 3", { labels });
  await done.wait();
  const other = await cat({});
  const seen = new Map();
  let after;
  let late;
  for await (const { id, latest } of s.spool.watch({ label })) {
    assert.notEqual(id, other.id);
    seen.set(id, latest);
    const state = (run) => run && seen.get(run.id)?.state;
    if (!after && seen.size === 2) {
      assert.deepEqual([state(before), state(done)], ["running", "closed"]);
      await before.stdin.close();
      await other.stdin.close();
      after = await cat();
    }
    if (after && id === after.id && latest.bytes === 3 && latest.state === "running") await after.stdin.close();
    if (!late && state(after) === "closed" && state(before) === "closed") late = await cat();
    if (late && id === late.id) break;
  }
  assert.equal(seen.get(before.id).outcome.code, 0);
  // A run that the query does not select any more is seen a last time.
  let closes = true;
  for await (const { id, latest } of s.spool.watch({ live: true, label })) {
    assert.equal(id, late.id);
    if (closes) await late.stdin.close();
    closes = false;
    if (latest.state === "closed") break;
  }
  const left = new AbortController();
  const watching = gather(s.spool.watch({ live: true, label, signal: left.signal }));
  left.abort(new Error("left"));
  await assert.rejects(watching, /left/);
  await assert.rejects(gather(s.spool.watch({ state: "x" })), sdk.InvalidRequest);
});

test("a_list_goes_on_after_a_run_that_was_removed", async () => {
  for (const oldest of [false, true]) {
    const begin = unique();
    for (const id of ["one", "two", "three"]) await finished(s.spool, begin + id);
    const seen = [];
    for await (const run of s.spool.runs({ prefix: begin, oldest, pageSize: 1 })) {
      seen.push(run.id.slice(begin.length));
      if (seen.length === 2) await run.delete();
    }
    assert.deepEqual(seen, oldest ? ["one", "two", "three"] : ["three", "two", "one"]);
  }
});

test("removes_finished_runs_only", async () => {
  const over = await s.spool.run("echo over");
  const stays = await s.spool.run("echo stays");
  await Promise.all([over.wait(), stays.wait()]);
  const live = await s.spool.run(["cat"], { stdin: true });
  const remove = (runs, dry) => s.spool.http.json("POST", "/v1/remove", { json: { runs, ...(dry ? { dry } : {}) } });
  await assert.rejects(live.delete(), sdk.Conflict);
  await assert.rejects(remove([over.id, live.id]), sdk.Conflict);
  await assert.rejects(remove([over.id, "nosuchrun"]), sdk.NotFound);
  const removal = await remove([over.id], true);
  assert.ok(removal.bytes > 0);
  assert.deepEqual(removal.runs, [over.id]);
  await over.info(); // which is there after a dry removal
  await over.delete();
  for (const call of [() => over.info(), () => over.read(), () => gather(over.events())]) await assert.rejects(call, sdk.NotFound);
  await assert.rejects(new sdk.Run(s.direct.http, over.latest).delete(), sdk.NotFound);
  assert.deepEqual(await gather(s.spool.runs({ prefix: over.id })), []);
  assert.equal(await stays.text(), "stays\n");
  await end(live);
  await live.delete(); // at once after the end, when the files may not be complete yet
});

test("renames_live_and_finished_runs", async () => {
  const mark = unique();
  const [first, second, third] = [1, 2, 3].map((n) => `${mark}-${n}`);
  const run = await s.spool.run(["cat"], { stdin: true, name: first });
  const found = async (name) => (await gather(s.spool.runs({ name }))).map((r) => r.id);
  const rename = async (from, to) => {
    await run.rename(to);
    assert.equal(run.latest.name, to);
    assert.equal((await run.info()).name, to);
    assert.deepEqual([await found(from), await found(to)], [[], [run.id]]);
  };
  await rename(first, second);
  await end(run);
  assert.equal((await run.info()).name, second);
  await rename(second, third);
  await assert.rejects(new sdk.Run(s.spool.http, { id: "nosuchrun" }).rename("x"), sdk.NotFound);
  await assert.rejects(run.rename("x".repeat(1 << 18)), sdk.InvalidRequest);
});

test("of_starts_with_one_name_one_wins", async () => {
  const name = unique();
  for (let round = 0; round < 2; round++) {
    const starts = await Promise.allSettled(Array.from({ length: 8 }, () => s.spool.run(["cat"], { stdin: true, name })));
    const won = starts.filter((start) => start.status === "fulfilled").map((start) => start.value);
    assert.equal(won.length, 1);
    for (const { reason } of starts.filter((start) => start.status === "rejected")) {
      assert.ok(reason instanceof sdk.StartFailed && reason.code === "start_name_taken" && reason.hint, String(reason));
    }
    await end(won[0]); // and the name is free again
  }
});

test("of_renames_to_one_name_one_wins", async () => {
  const name = unique();
  const runs = await Promise.all([1, 2, 3, 4].map(() => s.spool.run(["cat"], { stdin: true })));
  const renames = await Promise.allSettled(runs.map((run) => run.rename(name)));
  assert.equal(renames.filter((rename) => rename.status === "fulfilled").length, 1);
  for (const { reason } of renames.filter((rename) => rename.status === "rejected")) assert.ok(reason instanceof sdk.Exists, String(reason));
  await Promise.all(runs.map(end));
});

test("search_finds_lines_of_live_and_finished_runs", async () => {
  const begin = unique();
  const script = "echo plain needle; printf '\\033[31mnee\\033[0mdle in colour\\n' >&2; printf 'no newline needle'";
  await (await s.spool.run(script, { id: `${begin}aone`, labels: { kind: begin } })).wait();
  // The second half of the line is written after a line on stderr.
  const live = await s.spool.run("printf 'first nee'; echo between >&2; read x; echo 'dle last'; echo done; read x", {
    id: `${begin}btwo`,
    stdin: true,
  });
  await until(live, "between");
  await until(live, "first nee");
  await live.stdin.write("go\n");
  await until(live, "done\n");
  const first = ["aone stderr needle in colour", "aone stdout no newline needle", "aone stdout plain needle"];
  const second = ["btwo stdout first needle last"];
  for (const [text, query, want] of [
    ["needle", {}, [...first, ...second]],
    ["needle", { label: `kind:${begin}` }, first],
    ["needle", { runs: [live.id] }, second],
    ["^first n[e]+dle l", { regex: true }, second],
    ["IN COLOUR", { ignoreCase: true }, first.slice(0, 1)],
    ["n.*dle", {}, []],
  ]) {
    const hits = await gather(s.spool.search(text, { prefix: begin, ...query }));
    assert.deepEqual(hits.map((h) => `${h.run.slice(begin.length)} ${h.stream} ${h.text}`).sort(), want, text);
    assert.ok(hits.every((h) => h.seq > 0 && h.kind === "output"));
  }
  await end(live);
});

test("pages_of_a_search_hold_each_hit_once", async () => {
  const begin = unique();
  const lines = "i=0; while [ $i -lt 25 ]; do echo \"line $i\"; i=$((i+1)); done";
  for (const n of [2, 1, 0]) await (await s.spool.run(lines, { id: `${begin}run${n}` })).wait();
  const want = [0, 1, 2].flatMap((n) => Array.from({ length: 25 }, (_, i) => `run${n} line ${i}`));
  const shown = (hits) => hits.map((h) => `${h.run.slice(begin.length)} ${h.text}`);
  for (const pageSize of [7, 25, 26, 1000]) {
    assert.deepEqual(shown(await gather(s.spool.search("line", { prefix: begin, pageSize }))), want);
  }
  assert.deepEqual(shown(await take(s.spool.search("line", { prefix: begin, pageSize: 1 }), 30)), want.slice(0, 30));
});

test("errors_of_a_search", async () => {
  const { id } = await finished(s.spool, unique());
  for (const [text, query] of [
    ["", {}],
    ["(", { regex: true }],
    ["a\nb", {}],
    ["x".repeat(5000), {}],
    ["x", { pageSize: -1 }],
    ["x", { state: "odd" }],
  ]) {
    await assert.rejects(gather(s.spool.search(text, query)), sdk.InvalidRequest, `${text.slice(0, 10)} ${JSON.stringify(query)}`);
  }
  for (const cursor of ["nonsense", "nonsense~~1"]) {
    await assert.rejects(s.spool.http.json("GET", "/v1/search", { query: { q: "x", cursor } }), sdk.InvalidRequest);
  }
  await assert.rejects(gather(s.spool.search("x", { runs: [id, "unknown"] })), sdk.NotFound);
  assert.deepEqual(await gather(s.spool.search("x", { runs: [id] })), []);
});

// work starts a script on a view of a directory, or skips the test where there are none.
async function work(t, dir, kind, script) {
  try {
    const run = await s.spool.run(script, { cwd: dir, workspace: { kind }, stdin: true });
    t.after(async () => {
      await end(run);
      await run.delete(); // the kernel leaves directories that a user cannot remove
    });
    return run;
  } catch (error) {
    if (!(error instanceof sdk.ProblemError && error.code === "start_unsupported") || process.env.CI) throw error;
    t.skip(error.message);
    return undefined;
  }
}

async function worked() {
  const dir = await directory();
  for (const [name, text] of [["kept", "kept\n"], ["changed", "before\n"], ["deleted", "deleted\n"]]) writeFileSync(join(dir, name), text);
  return dir;
}

const paths = (changes) => changes.map((c) => `${c.op[0]} ${c.path}${c.conflict ? "!" : ""}`);

test("changes_of_workspaces_are_listed_applied_and_discarded", async (t) => {
  const dir = await worked();
  const content = (name) => readFileSync(join(dir, name), "utf8");
  const script = (name) => `echo ${name} >changed; rm deleted; mkdir new; echo ${name} >new/${name}; head -n 1 >/dev/null`;
  const one = await work(t, dir, "overlay", script("one"));
  const two = one && (await work(t, dir, "overlay", script("two")));
  if (!two) return;
  // While a run lives, its changes can be listed only.
  const busy = (error) => error instanceof sdk.ProblemError && error.code === "busy";
  await assert.rejects(one.apply(), busy);
  await assert.rejects(one.discard(), busy);
  await one.changes();
  for (const run of [one, two]) {
    await run.stdin.write("go\n");
    await run.check();
  }
  const all = ["m changed", "d deleted", "a new", "a new/one"];
  const changes = await one.changes();
  assert.deepEqual(paths(changes), all);
  assert.ok(changes[1].patch.includes("\n-deleted\n"));
  assert.deepEqual(paths(await one.apply([], { dry: true })), all);
  assert.equal(content("changed"), "before\n");
  await assert.rejects(one.apply(["other"]), sdk.NotFound);
  await assert.rejects(one.apply(["../other"]), sdk.InvalidRequest);
  assert.deepEqual(paths(await one.apply(["changed", "new"])), ["m changed", "a new", "a new/one"]);
  assert.deepEqual([content("changed"), content("deleted")], ["one\n", "deleted\n"]);
  assert.deepEqual(paths(await one.changes()), ["d deleted"]);
  await assert.rejects(two.apply(), (error) => {
    assert.ok(error instanceof sdk.Conflict && error.message.includes("changed"));
    assert.deepEqual(paths(error.problem.changes.changes), ["m changed!", "d deleted", "a new/two"]);
    return true;
  });
  assert.ok(existsSync(join(dir, "deleted")) && !existsSync(join(dir, "new/two")));
  await two.discard();
  await assert.rejects(two.changes(), sdk.NotFound);
  await assert.rejects(two.apply(), sdk.NotFound);
});

test("errors_of_workspaces", async (t) => {
  const dir = await worked();
  const none = await finished(s.spool, unique());
  const unknown = new sdk.Run(s.direct.http, { id: "nosuchrun" });
  for (const [run, kind] of [[none, sdk.Unsupported], [unknown, sdk.NotFound]]) {
    for (const call of [() => run.changes(), () => run.apply(), () => run.discard()]) await assert.rejects(call, kind);
  }
  const snapshot = await work(t, dir, "snapshot", "echo x >direct");
  await snapshot.check();
  assert.deepEqual(paths(await snapshot.changes()), ["a direct"]);
  await snapshot.apply();
  await assert.rejects(snapshot.discard(), sdk.Unsupported);
  await assert.rejects(s.spool.run(["true"], { workspace: { kind: "copy" } }), (error) => error.code === "start_invalid");
});
