import assert from "node:assert/strict";
import { test } from "node:test";
import { fold, parse, structured, visible } from "../src/sgr.ts";

test("colours become spans", () => {
  const r = parse("\x1b[1;31mred\x1b[0m plain \x1b[38;5;208morange\x1b[39m\x1b[48;2;1;2;3mback");
  assert.deepEqual(r.spans.map(s => [s.text, s.cls, s.fg ?? "", s.bg ?? ""]), [
    ["red", "bold fg1", "", ""],
    [" plain ", "", "", ""],
    ["orange", "", "rgb(255 135 0)", ""],
    ["back", "", "", "rgb(1 2 3)"],
  ]);
  assert.equal(r.plain, "red plain orangeback");
});

test("other escapes are dropped", () => {
  for (const text of ["\x1b[2Ja\x1b[10;3Hb", "\x1b]0;title\x07ab", "\x1b]8;;http://x\x1b\\ab\x1b]8;;\x1b\\", "\x1b(Bab", "a\x1b[?25lb", "ab\x1b[3", "ab\x1b]52;c;aGk=", "a\x00\x07b"]) assert.equal(parse(text).plain, "ab", JSON.stringify(text));
});

test("a progress bar is folded to its last state", () => {
  assert.deepEqual(fold("10%\r50%\r100%"), { text: "100%", updates: 2 });
  assert.deepEqual(fold("line\r"), { text: "line", updates: 0 });
  assert.deepEqual(fold("90%\r\x1b[K"), { text: "90%", updates: 1 });
});

test("addresses become links, and nothing else does", () => {
  const links = (t: string) => parse(t).spans.filter(s => s.href).map(s => s.href);
  assert.deepEqual(links("see https://example.com/a?b=c."), ["https://example.com/a?b=c"]);
  assert.deepEqual(links("javascript:alert(1) data:text/html,x file:///etc/passwd"), []);
});

test("changes of direction are shown", () => {
  assert.equal(visible("a\u202eb"), "a⟨U+202E⟩b");
});

test("files with a line, and JSON", () => {
  const files = (text: string) => parse(text).spans.filter(s => s.file).map(s => s.file);
  assert.deepEqual(files("main.go:12: x (./a/b-c.ts:3:4) at /x/y.py:7"), ["main.go:12", "./a/b-c.ts:3:4", "/x/y.py:7"]);
  assert.deepEqual(files('  File "/a b/c.py", line 9, in f'), ["/a b/c.py:9"]);
  assert.deepEqual(files("http://h/x.go:12 10.0.0.1:80 example.com:443 a.go b.go:x 12:30:01"), []);
  assert.deepEqual(structured('x {"a":[1]}'), { a: [1] });
  for (const text of ["{}", "[INFO] done]", "{a}", "1", "", "{".repeat(1000) + "}"]) assert.equal(structured(text), undefined);
});

test("whatever a program writes is parsed, quickly", () => {
  let seed = 7;
  const next = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  const parts = ["\x1b", "[", "]", ";", "m", "38", "5", "2", "\r", "\x07", "\\", "P", "x", "é", "https://", "\x9b", ":", "999999999999", "\u2066"];
  for (let i = 0; i < 3000; i++) {
    let text = "";
    for (let n = next(30); n > 0; n--) text += parts[next(parts.length)];
    const r = parse(text);
    assert.equal(r.spans.map(s => s.text).join(""), r.plain);
    assert.doesNotMatch(r.plain, /[\x00-\x08\x0b-\x1f\x7f-\x9f\u2066]/);
  }
  for (const text of ["\r".repeat(100_000), "\x1b[".repeat(50_000), "\x1b]".repeat(20_000), "https://".repeat(10_000), "a".repeat(300_000), "a/".repeat(50_000), "a.b".repeat(50_000), "a.go:".repeat(20_000), 'File "'.repeat(20_000), "/a.go:1".repeat(20_000), "\x1b[1;".repeat(20_000) + "m"]) {
    const began = process.cpuUsage().user;
    parse(text);
    assert.ok(process.cpuUsage().user - began < 5_000_000, JSON.stringify(text.slice(0, 10)));
  }
});
