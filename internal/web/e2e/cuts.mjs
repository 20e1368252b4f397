// Journeys over a way to the server that is cut at any byte, refuses WebSockets, or holds
// streams back: whatever carries the events, each is seen once.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { see, until } from "./page.mjs";
import { state, visit } from "./server.mjs";

/** Way passes connections on to the server, at another address of this machine. */
class Way {
  sockets = true; // WebSockets pass
  streams = true; // streams pass, and not only their headers
  cutAfter = Infinity; // bytes of a connection to the page
  cuts = 0;
  #open = new Set();
  #server;

  async start(port) {
    this.#server = net.createServer(client => this.#pass(client, port));
    await new Promise(resolve => this.#server.listen(port, "127.0.0.3", resolve));
    return `http://127.0.0.3:${port}`;
  }

  #pass(client, port) {
    const upstream = net.connect(port, "127.0.0.1");
    const both = [client, upstream];
    const end = () => both.forEach(s => s.destroy());
    for (const s of both) {
      this.#open.add(s);
      s.on("error", end).on("close", () => (this.#open.delete(s), end()));
    }
    let held = false;
    let left = this.cutAfter * (0.5 + Math.random());
    client.on("data", b => {
      const head = b.toString("latin1");
      if (/^upgrade: websocket/im.test(head) && !this.sockets) return void client.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
      held = !this.streams && /^accept: text\/event-stream/im.test(head);
      upstream.write(b);
    });
    upstream.on("data", b => {
      if (held) b = b.subarray(0, b.indexOf("\r\n\r\n") + 4); // without an end of the headers, nothing
      if (b.length < left) {
        left -= b.length;
        return void client.write(b);
      }
      this.cuts++;
      client.write(b.subarray(0, Math.floor(left)), end);
    });
  }

  /** cut ends all connections now. */
  cut() {
    this.cuts++;
    for (const s of this.#open) s.resetAndDestroy();
  }

  stop() {
    for (const s of this.#open) s.destroy();
    this.#server.close();
  }
}

export default ({ server, b }) => ({
  async "an event source over a way that is cut"() {
    const way = new Way();
    const url = await way.start(new URL(server.url).port);
    try {
      // Each size is an event, also on a machine that is so busy that it reads many lines at once.
      const run = await server.run({ argv: ["cat"], tty: { rows: 24, cols: 80 }, name: "sourced" });
      const control = body => server.call("POST", `/v1/runs/${run.id}/control`, body);
      for (let cols = 81; cols < 131; cols++) await control({ op: "resize", size: { rows: 24, cols } });
      await control({ op: "kill" });
      const { last } = await server.wait(run.id);
      const page = await visit(b, server.open().replace(server.url, url));
      way.cutAfter = 2500;
      way.cut(); // those that are open have no end
      const seen = await page.evaluate(async path => {
        const made = await fetch("/v1/tickets", { method: "POST", headers: { "Content-Type": "application/json", "Spool-Key": localStorage.getItem("spool-key") }, body: JSON.stringify({ path, stream: true }) });
        const { url } = await made.json();
        const source = new EventSource(url);
        const seqs = [];
        let opened = 0;
        source.onopen = () => opened++;
        source.onmessage = e => seqs.push(Number(e.lastEventId));
        await new Promise(resolve => (source.onerror = () => source.readyState === EventSource.CLOSED && resolve())); // after the 204
        return { seqs, opened };
      }, `/v1/runs/${run.id}/events`);
      assert.deepEqual(seen.seqs, Array.from({ length: last }, (_, i) => i + 1));
      assert.ok(seen.opened >= 3 && way.cuts >= 3, `opened ${seen.opened} times, cut ${way.cuts} times`);
      await page.context().close();
    } finally {
      way.stop();
    }
  },

  async "the ladder over a way that is cut"() {
    const way = new Way();
    const url = await way.start(new URL(server.url).port);
    try {
      for (const [name, sockets, streams, rung] of [["socket", true, true, "WebSocket"], ["refused", false, true, "Streams"], ["held", false, false, "Long polling"]]) {
        Object.assign(way, { sockets, streams });
        const run = await server.shell("while read x; do echo got $x; done", { name: "cut-" + name, stdin: true });
        const say = text => server.write(run.id, text + "\n");
        const page = await visit(b, server.open(run.id).replace(server.url, url));
        await see(page, "Connected · " + rung);
        for (let i = 1; i <= 3; i++) {
          await say(i);
          if (i === 2) way.cut(); // before it came, or after
          await page.locator(".row", { hasText: new RegExp(`got ${i}$`) }).waitFor();
        }
        await until(page, () => document.querySelectorAll(".row .x").length === 3);
        assert.deepEqual(await page.locator(".row .x").allTextContents(), Array.from({ length: 3 }, (_, i) => `got ${i + 1}`), name);
        await page.context().close();
        await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
      }
    } finally {
      way.stop();
    }
  },

  async "a keeper that nobody reaches"() {
    // What it keeps is not known: the page says that it does not know, and asks again.
    const run = await server.shell("read x", { name: "still-here", stdin: true });
    const file = join(state, "hosts", "silent.json");
    writeFileSync(file + ".new", JSON.stringify({ id: "silent", pid: process.pid, address: `keeper:${file}.sock` }));
    const keeper = spawn("flock", ["--no-fork", file + ".new", "sh", "-c", `mv '${file}.new' '${file}'; echo lives; exec sleep 1000`], { stdio: ["ignore", "pipe", "inherit"] });
    try {
      await once(keeper.stdout, "data");
      const page = await visit(b, server.open());
      await see(page, "a keeper does not answer");
      keeper.kill("SIGKILL");
      await see(page, "Connected");
      await see(page, "still-here");
      await page.context().close();
    } finally {
      keeper.kill("SIGKILL");
    }
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },
});
