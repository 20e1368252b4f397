// Connections that are cut: nothing is lost, nothing comes twice.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import net from "node:net";
import { after, before, test } from "node:test";

import * as sdk from "../dist/node.js";
import { startServer } from "./lib/server.js";

const cuts = 500;
const most = 40_000; // bytes before a cut

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

// startProxy forwards connections, and resets each after a random number of bytes. It has
// the port of the server at another address of this machine, so that the server knows its name.
async function startProxy(port) {
  const result = { url: `http://127.0.0.2:${port}`, cuts: 0, close: () => listener.close() };
  const listener = net.createServer((client) => {
    const upstream = net.connect(port, "127.0.0.1");
    let budget = result.cuts < cuts ? Math.floor(Math.random() * most) : Infinity;
    client.on("error", () => upstream.destroy());
    upstream.on("error", () => client.destroy());
    client.pipe(upstream);
    upstream.on("end", () => client.end());
    upstream.on("data", (data) => {
      if (data.length <= budget) {
        budget -= data.length;
        client.write(data);
        return;
      }
      result.cuts++;
      client.write(data.subarray(0, budget), () => client.resetAndDestroy());
      upstream.destroy();
    });
  });
  await new Promise((resolve) => listener.listen(port, "127.0.0.2", resolve));
  return result;
}

test("every_event_comes_once", async () => {
  const want = Array.from({ length: 4000 }, (_, i) => `line ${i} of many\n`).join("");
  while (proxy.cuts < cuts) {
    const run = await spool.run("i=0; while [ $i -lt 4000 ]; do echo line $i of many; i=$((i+1)); done");
    let seq = 0;
    let text = "";
    for await (const event of run.events()) {
      assert.equal(event.seq, ++seq);
      if (event.kind === "output") text += sdk.textOf(event);
    }
    assert.ok(text === want, `run ${run.id} has other output`);
    assert.ok((await run.text()) === want, `run ${run.id} has other output`);
  }
});

test("input_arrives_once", async () => {
  proxy.cuts = cuts - 50;
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
