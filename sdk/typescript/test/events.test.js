import assert from "node:assert/strict";
import { test } from "node:test";

import { Cursor, flatten } from "../dist/events.js";

const line = (seq, more = {}) => `${JSON.stringify({ run: "r", seq, kind: "output", ...more })}\n`;
const bytes = (text) => new TextEncoder().encode(text);

test("a cursor takes lines that are cut anywhere", () => {
  const text = `${line(1, { text: "ä\n" })}\n\n${line(2)}${line(2)}\n${line(3, { kind: "closed" })}`;
  for (let cut = 0; cut <= bytes(text).length; cut++) {
    const cursor = new Cursor(0);
    const events = [...cursor.feed(bytes(text).subarray(0, cut)), ...cursor.feed(bytes(text).subarray(cut))];
    assert.deepEqual([events.map((e) => e.seq), events[0].text, cursor.complete], [[1, 2, 3], "ä\n", true]);
  }
  assert.throws(() => new Cursor(0).feed(bytes(line(2))), /came after event 0/);
});

test("batches are one sequence, whoever asks when", async () => {
  let ended = false;
  async function* batches() {
    try {
      yield [1, 2];
      yield [];
      yield [3, 4, 5];
    } finally {
      ended = true;
    }
  }
  const all = flatten(batches());
  const asked = await Promise.all([all.next(), all.next(), all.next(), all.next()]);
  assert.deepEqual(asked.map((r) => r.value), [1, 2, 3, 4]);
  assert.deepEqual(await all.return(), { done: true, value: undefined });
  assert.ok(ended);
  assert.ok((await all.next()).done);

  const seen = [];
  for await (const value of flatten(batches())) seen.push(value);
  assert.deepEqual(seen, [1, 2, 3, 4, 5]);
  await assert.rejects(flatten(batches()).throw(new Error("no")), /no/);
});
