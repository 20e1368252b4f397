// Tools for models, and what all runs do.
import assert from "node:assert/strict";
import { mkdtemp, realpath } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";

import { Spool, Tools } from "../dist/index.js";
import { startServer } from "./lib/server.js";

let server;
let spool;
before(async () => {
  server = await startServer();
  spool = new Spool(server);
});
after(() => server.stop());

const plot = `
import struct, zlib
class Picture:
    def _repr_png_(self):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
        return png + chunk(b"IDAT", zlib.compress(b"\\0\\0")) + chunk(b"IEND", b"")
Picture()
`;

test("a_model_gets_the_tools", () => {
  const names = spool.tools.asOpenAI().map((tool) => tool.function.name);
  assert.deepEqual(names, ["run_command", "read_run", "send_input", "stop_run", "list_runs", "python", "ask_agent"]);
  assert.deepEqual(spool.tools.asAnthropic().map((tool) => tool.name), names);
  assert.deepEqual(Object.keys(spool.tools.functions()), names);
  assert.throws(() => new Tools(spool, { names: ["nothing"] }), /no tool nothing/);
});

test("a_model_runs_and_reads", async () => {
  const cwd = await mkdtemp(join(tmpdir(), "sp"));
  const tools = new Tools(spool, { cwd, env: { COLOUR: "blue" }, budget: 400 });
  const command = "basename $PWD; echo $COLOUR $SHAPE; seq 10000";
  let result = await tools.call("run_command", JSON.stringify({ command, env: { SHAPE: "round" }, budget: 90_000 }));
  assert.ok(!result.isError && result.text.includes(basename(cwd)) && result.text.includes("blue round"), result.text);
  assert.ok(result.data.text.length <= 400 && result.data.omitted.lines > 9000);
  result = await tools.call("read_run", { run: result.data.run, grep: "^7777$", context: 0 });
  assert.ok(result.text.includes("7777") && !result.text.includes("7776"), result.text);
  assert.deepEqual(result.asOpenAI("call-1"), { role: "tool", tool_call_id: "call-1", content: result.text });
});

test("a_model_reads_what_it_did_wrong", async () => {
  for (const [name, args, said] of [
    ["run_comand", {}, "there is no tool run_comand"],
    ["run_command", "{", "no JSON object"],
    ["run_command", "[]", "no JSON object"],
    ["run_command", { comand: "true" }, "command"],
    ["read_run", { run: "nobody" }, "nobody"],
  ]) {
    const result = await spool.tools.call(name, args);
    assert.ok(result.isError && result.text.includes(said), result.text);
    assert.ok(result.asAnthropic("use-1").is_error);
  }
});

test("a_model_draws_in_a_kernel_of_the_program", async () => {
  const kernel = await spool.kernel();
  (await kernel.exec("x = 20")).check();
  const tools = new Tools(spool, { names: ["python"], kernel });
  assert.match((await tools.call("python", { code: "x * 2 + 2" })).text, /42/);
  const result = await tools.call("python", { code: plot });
  assert.deepEqual(result.images.map((image) => image.mime), ["image/png"]);
  assert.deepEqual(result.asAnthropic("use-1").content.map((part) => part.type), ["text", "image"]);
  await kernel.kill();
});

test("a_session_is_in_the_directory_of_the_tools", async () => {
  const cwd = await mkdtemp(join(tmpdir(), "sp"));
  const tools = new Tools(spool, { cwd });
  const first = await Promise.all([1, 2].map(() => tools.call("python", { code: "import os; x = os.getcwd()" })));
  assert.ok(first.every((result) => !result.isError));
  assert.ok((await tools.call("python", { code: "x" })).text.includes(await realpath(cwd)));
  assert.match((await tools.call("python", { code: "x", session: "other" })).text, /NameError/);
  await tools.close();
});

test("changes_arrive", async () => {
  const labels = { test: "changes" };
  const run = await spool.run(["cat"], { stdin: true, labels });
  const states = [];
  for await (const changed of spool.watch({ label: "test:changes" })) {
    assert.equal(changed.id, run.id);
    states.push(changed.latest.state);
    if (states.length === 1) await run.stdin.close();
    if (changed.latest.state === "closed") break;
  }
  assert.equal(states[0], "running");
});

test("a_change_during_a_cut_arrives", async () => {
  const { hostname, port } = new URL(server.url);
  const open = new Set();
  let refuses = false;
  const proxy = net.createServer((client) => {
    if (refuses) return client.destroy();
    const upstream = net.connect(Number(port), hostname);
    for (const [end, other] of [[client, upstream], [upstream, client]]) {
      open.add(end);
      end.on("error", () => other.destroy());
      end.on("close", () => open.delete(end) && other.destroy());
      end.pipe(other);
    }
  });
  // The port of the server at another address, so that the server knows its name.
  await new Promise((resolve) => proxy.listen(Number(port), "127.0.7.7", resolve));
  const cut = new Spool({ url: `http://127.0.7.7:${port}`, token: server.token });
  const labels = { test: "cut" };
  const ends = await spool.run(["cat"], { stdin: true, labels });
  const stays = await spool.run(["cat"], { stdin: true, labels });
  const live = cut.watch({ live: true, label: "test:cut" });
  const first = [(await live.next()).value.id, (await live.next()).value.id];
  assert.deepEqual(first.sort(), [ends.id, stays.id].sort());
  refuses = true;
  for (const end of open) end.destroy();
  await ends.kill();
  await ends.wait();
  refuses = false;
  for (let state; state !== "closed"; ) {
    const { value } = await live.next(); // it is not live any more, and the other has not changed
    assert.equal(value.id, ends.id);
    state = value.latest.state;
  }
  await live.return();
  await stays.kill();
  for (const end of open) end.destroy();
  await new Promise((resolve) => proxy.close(resolve));
});

test("asks_are_answered_from_one_place", async () => {
  const kernel = await spool.kernel({ config: { input: "ask" } });
  const cell = kernel.exec("input('colour? ')");
  for await (const ask of spool.asks({ follow: true, run: kernel.id })) {
    assert.deepEqual([ask.run, ask.kind, ask.prompt], [kernel.id, "input", "colour? "]);
    await spool.answer(ask, "blue");
    break;
  }
  assert.equal((await cell).check().result, "'blue'");
  for await (const ask of spool.asks({ run: kernel.id })) assert.fail(`${ask.seq} is open`);
  await kernel.kill();
});
