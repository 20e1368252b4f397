import assert from "node:assert/strict";
import { test } from "node:test";
import { Feed } from "../src/feed.ts";
import { FrameReader } from "../src/frames.ts";
import { encode, picked } from "../src/images.ts";
import { keptBlocks, blockLines, notesOf, Whole } from "../src/lines.ts";
import { nodes, type Node } from "../src/markdown.ts";
import { pieces } from "../src/python.ts";
import { decodeRecords, type LogEvent } from "../src/record.ts";
import { asToml, policyOf } from "../src/policy.ts";
import { asOf, lastSaid, Turns } from "../src/turns.ts";
import { apart, pointsOf, Timeline } from "../src/timeline.ts";
import { split } from "../src/words.ts";

test("frames, however the bytes are cut", () => {
  const stream = new TextEncoder().encode('retry: 1000\n\nevent: info\ndata: {"é":1}\n\n: \n\nid: 58\ndata: a\ndata: b\n\n');
  for (let cut = 1; cut < stream.length; cut++) {
    const r = new FrameReader();
    const got = [...r.push(stream.subarray(0, cut)), ...r.push(stream.subarray(cut))];
    assert.deepEqual(got, [{ event: "info", data: '{"é":1}' }, { event: "message", data: "a\nb", id: "58" }]);
  }
});

function record(seq: number, kind: number, stream: number, data: string, bytes: string): Uint8Array {
  const d = new TextEncoder().encode(data);
  const b = new TextEncoder().encode(bytes);
  const all = new Uint8Array(40 + d.length + b.length);
  const v = new DataView(all.buffer);
  v.setUint32(0, all.length, true);
  v.setBigUint64(8, BigInt(seq), true);
  v.setBigInt64(16, 1_700_000_000_000_000_000n, true);
  v.setUint8(24, kind);
  v.setUint8(25, stream);
  v.setUint32(28, d.length, true);
  all.set(d, 40);
  all.set(b, 40 + d.length);
  return all;
}

test("records, and damaged ones", () => {
  const both = new Uint8Array([...record(1, 3, 1, "", "hi"), ...record(2, 15, 0, '{"outcome":"ok"}', "")]);
  const got: LogEvent[] = [];
  decodeRecords(both, e => got.push(e));
  assert.deepEqual(got.map(e => [e.seq, e.kind, e.stream, e.data?.outcome]), [[1, "output", "stdout", undefined], [2, "done", undefined, "ok"]]);
  assert.equal(new TextDecoder().decode(got[0]!.bytes), "hi");
  for (const bad of [both.subarray(0, 20), both.subarray(0, both.length - 1)]) assert.throws(() => decodeRecords(bad, () => {}));
});

/** random numbers below n, the same in every run. */
function numbers(seed: number): (n: number) => number {
  return n => (seed = (seed * 48271) % 2147483647) % n;
}

test("whatever bytes come as records are events or an error", () => {
  const next = numbers(11);
  const good = new Uint8Array([...record(1, 3, 1, "", "hi"), ...record(2, 15, 0, '{"outcome":"ok"}', ""), ...record(3, 9, 0, '{"text":"x"}', "")]);
  let read = 0;
  for (let round = 0; round < 5000; round++) {
    const b = good.slice(0, next(3) ? good.length : next(good.length + 1));
    for (let changes = next(4); changes > 0 && b.length; changes--) b[next(b.length)] = next(256);
    let seen = 0;
    try {
      decodeRecords(b, (e, size) => {
        assert.equal(typeof e.kind, "string");
        assert.ok(size >= 40 && !Number.isNaN(Date.parse(e.time)));
        seen += size;
      });
      assert.equal(seen, b.length, "all of it was read");
      read++;
    } catch (e) {
      assert.ok(e instanceof Error && !(e instanceof assert.AssertionError), String(e));
      assert.ok(seen <= b.length);
    }
  }
  assert.ok(read > 500, `${read} were read`);
});

test("whatever an agent says as Markdown becomes harmless nodes", () => {
  const next = numbers(13);
  const parts = ["# ", "**", "_", "`", "```\n", "<script>", "</script>", "<img src=x onerror=y>", "[a](", "javascript:alert(1)", "https://x.test", ")", "![", "](data:text/html,x)", "|a|b|\n|-|-|\n", "- ", "1. ", "> ", "\n", "\n\n", "\t", " ", "<!--", "-->", "&lt;", "&#106;", "\\", "[^1]", "<https://y.test>", "<javascript:x>", "\u202e", "é", "\0", "text"];
  const tags = new Set(["h3", "h4", "h5", "h6", "p", "strong", "em", "s", "code", "pre", "br", "hr", "a", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "input", "span", "div"]);
  const walk = (n: Node) => {
    if (typeof n === "string") return;
    assert.ok(tags.has(n.tag), n.tag);
    for (const [name, value] of Object.entries(n.attrs ?? {})) {
      assert.ok(!/^on|^style$|^src/i.test(name), name);
      if (name === "href") assert.match(value, /^(https?:|mailto:)/i);
    }
    n.children.forEach(walk);
  };
  for (let round = 0; round < 2000; round++) {
    let text = "";
    for (let i = next(30); i >= 0; i--) text += parts[next(parts.length)];
    nodes(text).forEach(walk);
  }
});

test("images that a prompt may have", () => {
  const png = (size: number, type = "image/png") => ({ name: "a", type, size });
  assert.deepEqual(picked([png(4), png(6)], [], 10), { taken: [0, 1], wrong: "" });
  assert.deepEqual(picked([png(6), png(5), png(4)], [], 10), { taken: [0, 2], wrong: "a is too large: the images of a prompt have at most 10 B together." });
  assert.deepEqual(picked([png(4, "image/svg+xml"), png(0)], [], 10), { taken: [], wrong: "a is no PNG, JPEG, GIF or WebP." });
  const many = Array.from({ length: 21 }, () => png(1));
  assert.equal(picked(many, [], 100).taken.length, 20);
  assert.deepEqual(picked([png(1)], many.slice(1), 100), { taken: [], wrong: "A prompt has at most 20 images." });
  const bytes = Uint8Array.from({ length: 70_000 }, (_, i) => i);
  assert.deepEqual(Uint8Array.from(atob(encode(bytes.buffer)), c => c.charCodeAt(0)), bytes);
});

test("Markdown has no markup of others", () => {
  const all: Exclude<Node, string>[] = [];
  const walk = (n: Node) => {
    if (typeof n === "string") return;
    all.push(n);
    n.children.forEach(walk);
  };
  nodes("# T\n\n<script>alert(1)</script> <img src=x onerror=y>\n\nText <b>x</b> ![pic](https://evil.test/p.png) [bad](javascript:alert(1)) [good](https://x.test) `c`\n\n- a\n  - b\n\n|a|b|\n|-|-|\n|1|2|\n\n```js\nx\n```").forEach(walk);
  const tags = new Set(all.map(n => n.tag));
  for (const tag of ["script", "img", "iframe", "style"]) assert.ok(!tags.has(tag), tag);
  assert.deepEqual(all.filter(n => n.tag === "a").map(n => n.attrs!["href"]), ["https://x.test"]);
  assert.ok(tags.has("table") && tags.has("pre") && tags.has("ul"));
});

test("turns of a kernel and of an agent", () => {
  const t = new Turns();
  let seq = 0;
  const add = (kind: string, data: any, turn = 0, text = "") => t.take({ seq: ++seq, time: "2026-01-01T00:00:00Z", kind, data, turn, ...(text && { bytes: new TextEncoder().encode(text), stream: "stdout" }) });
  add("input", { kind: "cell", data: { code: "1" } });
  add("output", undefined, 1, "a");
  add("output", undefined, 1, "b");
  add("display", { "text/plain": "x", id: "p" }, 1);
  add("display", { "text/plain": "y", id: "p", update: true }, 1);
  add("ask", { kind: "input", prompt: "?" }, 1);
  add("input", { kind: "answer", data: { ask: 6, data: "yes", by: "ann" } });
  add("done", { outcome: "ok" }, 1);
  assert.equal(t.list.length, 1);
  assert.deepEqual(t.list[0]!.items.map(i => i.type), ["output", "display", "ask"]);
  assert.equal(t.list[0]!.items[0]!.text, "ab");
  assert.equal(t.list[0]!.items[1]!.data["text/plain"], "y");
  assert.equal(t.list[0]!.items[2]!.answered!.by, "ann");
  add("input", { kind: "prompt", data: { text: "do it" } });
  const p = seq;
  add("message", { text: "I ", delta: true, id: "m" }, p);
  add("message", { text: "will", delta: true, id: "m" }, p);
  add("message", { text: "I will.", id: "m" }, p);
  add("action", { id: "a", kind: "command", phase: "started", title: "make" }, p);
  add("action", { id: "a", kind: "command", phase: "completed", title: "make", ok: true }, p);
  add("display", { clear: true }, 1);
  assert.deepEqual(t.list[1]!.items.map(i => [i.type, i.text]), [["message", "I will."], ["action", ""]]);
  assert.equal(t.list[1]!.items[1]!.data.ok, true);
  for (let i = 0; i < 300; i++) add("input", { kind: "cell", data: { code: String(i) } });
  assert.ok(t.list.length <= 200 && t.cut);
});

test("a command line is taken apart as a shell does", () => {
  assert.deepEqual(split(`make "a b" 'c"d' e\\ f --x="1 2"`), ["make", "a b", 'c"d', "e f", "--x=1 2"]);
});

test("a timeline draws silences short, and finds events", () => {
  const points = [0, 100, 200, 60_200, 60_300].map((ms, i) => ({ seq: i * 10 + 1, ms, bytes: i * 100 }));
  const t = new Timeline(points);
  assert.equal(t.length, 2300);
  for (const p of points) assert.ok(Math.abs(t.seqAt(t.placeOf(p.seq)) - p.seq) <= 1, String(p.seq));
  assert.equal(t.seqAt(0), 1);
  assert.equal(t.seqAt(1), 41);
  assert.equal(new Timeline(points, false).length, 60_300);
  assert.equal(t.density(10).length, 10);
  assert.deepEqual([new Timeline([]).seqAt(0.5), new Timeline([]).placeOf(3)], [0, 0]);
});

test("turns as they were", () => {
  const turns = new Turns();
  const add = (seq: number, kind: string, data: any, turn = 1) => turns.take({ run: "a", seq, time: "2026-01-02T03:04:05Z", kind, turn, data } as any);
  add(1, "input", { kind: "cell", data: { code: "1" } });
  add(2, "exception", { name: "ValueError" });
  add(3, "done", { outcome: "error" });
  add(4, "input", { kind: "cell", data: { code: "2" } }, 4);
  add(5, "done", { outcome: "ok" }, 4);
  assert.deepEqual(asOf(turns.list, 0), []);
  assert.deepEqual(asOf(turns.list, 1).map(t => [t.seq, t.items.length, t.done?.outcome]), [[1, 0, undefined]]);
  assert.deepEqual(asOf(turns.list, 2).map(t => [t.seq, t.items.length, t.done?.outcome]), [[1, 1, undefined]]);
  assert.deepEqual(asOf(turns.list, 4).map(t => [t.seq, t.items.length, t.done?.outcome]), [[1, 1, "error"], [4, 0, undefined]]);
  assert.equal(asOf(turns.list, 9).length, 2);
  add(6, "message", { text: "All is\nwell" }, 4);
  add(7, "ask", { kind: "approval", data: { command: "make" } }, 4);
  assert.deepEqual([0, 1, 4, 6, 7].map(seq => lastSaid(turns.list, seq)), ["", "1", "2", "All is", "Asked: make"]);
});

test("a policy from a form", () => {
  const none = { otherwise: "ask", minutes: "", allow: "", deny: "", retype: "" };
  assert.equal(policyOf(none), undefined);
  const policy = policyOf({ otherwise: "deny", minutes: "0.5", allow: "go test\n\n git status ", deny: "git push", retype: 'rm "x"' })!;
  assert.deepEqual(policy, {
    default: "deny", deadline_ms: 30_000,
    rule: [{ verdict: "deny", command: ["git push"] }, { verdict: "ask", command: ['rm "x"'], retype: true }, { verdict: "allow", command: ["go test", "git status"] }],
  });
  assert.equal(asToml(policy), `default = "deny"
deadline = "30000ms"
[[rule]]
verdict = "deny"
command = ["git push"]
[[rule]]
verdict = "ask"
command = ["rm \\"x\\""]
retype = true
[[rule]]
verdict = "allow"
command = ["go test", "git status"]
`);
});

test("a line of time from an index", () => {
  const x = { points: [[1, 1000, 0, 0], [50, 2000, 500, 9]], first: 1, last: 100, last_ms: 60_000, bytes: 900, lines: 20, complete: true, marks: [] };
  const line = new Timeline(pointsOf(x as any));
  assert.equal(line.points.length, 3);
  assert.equal(line.length, 3000); // the silence is short
  assert.equal(line.placeOf(100), 1);
  const marks = [{ seq: 1, ms: 1000, kind: "turn" }, { seq: 1, ms: 1000, kind: "ask" }, { seq: 100, ms: 60_000, kind: "end" }];
  assert.deepEqual(apart(line, marks, 100).map(m => m.mark.kind), ["ask", "end"]);
  assert.deepEqual(pointsOf({ ...x, points: [], last: 0 } as any), []);
});

test("what is missing in a log", () => {
  const index = { points: [], first: 1, last: 9, last_ms: 0, bytes: 0, lines: 20, complete: true };
  const marks = [
    { seq: 3, ms: 0, kind: "truncated", line: 1, truncation: { from: 1, to: 1200 } },
    { seq: 7, ms: 0, kind: "end" },
    { seq: 8, ms: 0, kind: "truncated", line: 12, truncation: { dropped_bytes: { stdout: 1_200_000_000, stderr: 10 }, limit_bytes: 5000 } },
  ];
  assert.deepEqual(notesOf({ ...index, marks, damaged_from: 10 }), [
    { line: 1, text: "Events 1–1,200 are no longer kept." },
    { line: 12, text: "The run reached its output limit of 5.0 KB: 1.2 GB of stdout and 10 B of stderr dropped here." },
    { line: 21, text: "This log is damaged from event 10 on. What precedes it is good." },
  ]);
  assert.deepEqual(notesOf({ ...index, marks: [] }), []);
});

test("a terminal is fed in pieces, and not with what was overtaken", () => {
  const drawn: number[] = [];
  const told: string[] = [];
  let drawing: (() => void) | undefined;
  const feed = new Feed((bytes, shown) => {
    drawn.push(bytes.length);
    drawing = shown;
  });
  const draw = () => {
    const done = drawing;
    drawing = undefined;
    done?.();
  };
  feed.push(new Uint8Array(40_000), () => told.push("first"));
  feed.then(() => told.push("then"));
  assert.deepEqual([drawn, feed.behind], [[16384], 40_000]);
  draw();
  assert.deepEqual([drawn, feed.behind, told], [[16384, 16384], 40_000 - 16384, []]);
  feed.drop(); // one piece is being drawn
  assert.deepEqual([feed.behind, told], [16384, ["first", "then"]]);
  feed.push(new Uint8Array(3), () => told.push("second"));
  draw();
  draw();
  assert.deepEqual([drawn, feed.behind, told], [[16384, 16384, 3], 0, ["first", "then", "second"]]);
});

test("Python in pieces", () => {
  const code = 'def f(x1):  # a "comment"\n    return f"{x1}" + \'\'\'a\n#b\'\'\' + 0x1F or None';
  const all = pieces(code);
  assert.equal(all.map(p => p.text).join(""), code);
  const of = (kind: string) => all.filter(p => p.kind === kind).map(p => p.text);
  assert.deepEqual(of("word"), ["def", "return", "or", "None"]);
  assert.deepEqual(of("comment"), ['# a "comment"']);
  assert.deepEqual(of("string"), ['f"{x1}"', "\'\'\'a\n#b\'\'\'"]);
  assert.deepEqual(of("number"), ["0x1F"]);
  for (const odd of ["", '"open\nx', "\'\'\'never closed", "define = 1", "x".repeat(60_000), "\\".repeat(999) + '"']) assert.equal(pieces(odd).map(p => p.text).join(""), odd);
  assert.deepEqual(pieces("define"), [{ text: "define", kind: "" }]);
});

test("a tab keeps some lines of a long log, and asks again for others", async t => {
  const total = 3 * keptBlocks * blockLines;
  const asked: number[] = [];
  Object.assign(globalThis, { localStorage: { getItem: () => null } });
  t.mock.method(globalThis, "fetch", async (path: string) => {
    const q = new URL(path, "http://spool.test").searchParams;
    const from = Number(q.get("from"));
    asked.push(from);
    const lines = Array.from({ length: Number(q.get("count")) }, (_, i) => ({ n: from + i, seq: from + i, t: "", s: "o", text: `line ${from + i}` }));
    return Response.json({ lines, total, next: from + lines.length, complete: true });
  });
  const log = new Whole("long");
  const read = async (row: number) => {
    log.need(row, row + 1);
    while (!log.at(row)) await new Promise(resolve => setTimeout(resolve));
  };
  const blocks = total / blockLines;
  for (let b = 0; b < blocks; b++) await read(b * blockLines);
  const kept = Array.from({ length: blocks }, (_, b) => b).filter(b => log.at(b * blockLines));
  assert.deepEqual(kept, Array.from({ length: keptBlocks }, (_, i) => blocks - keptBlocks + i), "the newest are kept");
  asked.length = 0;
  await read((blocks - 1) * blockLines + 7);
  assert.deepEqual(asked, [], "what is kept is not asked for");
  await read(3);
  assert.deepEqual(asked, [1]);
  assert.equal(log.at(3)?.text, "line 4");
  log.stop();
});
