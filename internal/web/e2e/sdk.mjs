// The TypeScript client in a page of another origin: node sdk.mjs. It starts a command, follows it
// over a connection that is cut, waits, and stops.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { build } from "esbuild";
import { chromium } from "playwright-core";

const { SPOOL_PROGRAM: program, SPOOL_STATE: state, CHROMIUM: executablePath, SDK: source } = process.env;

const listen = (server, port, host) => new Promise(resolve => server.listen(port, host, () => resolve(server.address().port)));

// The page, with the client as a bundler makes it.
const bundle = await build({ entryPoints: [source], bundle: true, write: false, format: "esm", platform: "browser", target: "es2022" });
const [script] = bundle.outputFiles;
const site = http.createServer((request, answer) => {
  const isScript = request.url === "/sdk.js";
  answer.setHeader("Content-Type", isScript ? "text/javascript" : "text/html");
  answer.end(isScript ? script.text : "<!doctype html><title>A page</title>");
});
const origin = `http://127.0.0.1:${await listen(site, 0, "127.0.0.1")}`;

const server = spawn(program, ["serve", "--state", state, "--listen", "127.0.0.1:0", "--allow-origin", origin], { stdio: ["ignore", "pipe", "inherit"] });
const address = await new Promise((resolve, reject) => {
  createInterface({ input: server.stdout }).once("line", resolve);
  server.once("exit", code => reject(new Error("the server ended with " + code)));
});
const { port } = new URL(address);
const token = readFileSync(join(state, "server-token"), "utf8").trim();

// A way to the server that can be cut. It has the port of the server at another address, so
// that the server knows its name.
const open = new Set();
const proxy = net.createServer(client => {
  const upstream = net.connect(port, "127.0.0.1");
  for (const [end, other] of [[client, upstream], [upstream, client]]) {
    open.add(end);
    end.on("error", () => other.destroy());
    end.on("close", () => open.delete(end) && other.destroy());
    end.pipe(other);
  }
});
await listen(proxy, port, "127.0.0.2");
let cuts = 0;
function cut() {
  cuts++;
  for (const end of open) end.resetAndDestroy();
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(90_000);
  page.on("pageerror", error => assert.fail(error));
  await page.exposeFunction("cut", cut);
  await page.goto(origin);
  const seen = await page.evaluate(
    async ({ url, token }) => {
      const { Spool, textOf, NotFound } = await import("/sdk.js");
      const spool = new Spool({ url, token });
      const run = await spool.run('while read line; do echo "got $line"; done; exit 3', { stdin: true });
      const seqs = [];
      let text = "";
      let lines = 0;
      await run.stdin.write("line 0\n");
      for await (const event of run.events()) {
        seqs.push(event.seq);
        if (event.kind !== "output") continue;
        text += textOf(event);
        if (text.split("\n").length - 1 <= lines) continue;
        lines++;
        await window.cut(); // while the stream is open
        if (lines < 20) await run.stdin.write(`line ${lines}\n`);
        else await run.stdin.close();
      }
      const outcome = await run.wait();
      const whole = await run.text();
      const long = await spool.run(["sleep", "1000"]);
      await long.stop();
      const stopped = await long.wait();
      const missing = await spool.get("nosuchrun").catch(error => error instanceof NotFound);
      return { seqs, text, whole, outcome, stopped, missing };
    },
    { url: `http://127.0.0.2:${port}`, token },
  );
  const text = Array.from({ length: 20 }, (_, i) => `got line ${i}\n`).join("");
  assert.deepEqual(seen.seqs, seen.seqs.map((_, i) => i + 1));
  assert.deepEqual([seen.text, seen.whole], [text, text]);
  assert.deepEqual([seen.outcome.kind, seen.outcome.code, seen.stopped.signal, seen.missing], ["exited", 3, "SIGTERM", true]);
  assert.equal(cuts, 20);
} finally {
  await browser.close();
  for (const end of open) end.destroy();
  proxy.close();
  site.close();
  server.kill("SIGTERM");
}
