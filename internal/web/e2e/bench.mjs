// Measures the console in a real browser: node e2e/bench.mjs [MEGABYTES]. Prints one JSON
// object: metrics with their values, in seconds and bytes. Beside it, in the same browser,
// the player of asciinema, if ASCIINEMA names the directory of its files, and the terminals of
// wetty and of Jupyter, if WETTY and JUPYTER name their programs and XTERM the script of xterm.js.
import { spawn } from "node:child_process";
import { createReadStream, createWriteStream, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { finished } from "node:stream/promises";
import { browser, Server, visit } from "./server.mjs";

const megabytes = Number(process.argv[2] ?? 1024);
const times = Number(process.env.TIMES ?? 3);
const line = "step 8112 of 40000: loss 0.2131, gradient clipped, learning rate 0.0003, ok";
const result = {};
const add = (metric, ...values) => (result[metric] ??= []).push(...values);
const patience = 30_000; // milliseconds until Ctrl-C counts as not seen
let since = performance.now();
/** note tells how long a part took. */
const note = what => {
  console.error(`${what}: ${((performance.now() - since) / 1000).toFixed(1)} s`);
  since = performance.now();
};
const seconds = async f => {
  const began = performance.now();
  await f();
  return (performance.now() - began) / 1000;
};

const server = new Server();
await server.start();
const b = await browser();
const big = await server.shell(`yes '${line}' | head -c ${megabytes * 1_048_576}`, { name: "big" });
while ((await server.wait(big.id)).state !== "closed");
note("the log is written");
const page = await visit(b, server.open());
await page.locator(".run-row").first().waitFor();

// The page, from nothing to the first paint and to the list of runs.
for (let i = 0; i < times * 2; i++) {
  add("console.usable", await seconds(() => page.reload().then(() => page.locator(".run-row").first().waitFor())));
  add("console.painted", (await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN)) / 1000);
}

note("the page");

// A log of this size: first rows, exact scrollbar. The server knows nothing of it the first time.
for (let i = 0; i < times; i++) {
  await server.kill("SIGTERM"); // another one has to count the lines again
  await server.start();
  await page.goto(server.url + "/settings");
  await page.locator("h1").waitFor();
  const began = performance.now();
  await page.goto(`${server.url}/runs/${big.id}?view=log`);
  await page.locator(".row .x").first().waitFor();
  add("console.first_rows", (performance.now() - began) / 1000);
  await page.waitForFunction(() => /^[\d,]+ lines$/.test(document.querySelector(".toolbar .counted")?.textContent ?? ""), null, { polling: 20 });
  add("console.scrollbar", (performance.now() - began) / 1000);
}
const jumps = await page.evaluate(async () => {
  const s = document.querySelector(".log-scroll");
  const all = [];
  for (let i = 1; i <= 20; i++) {
    const began = performance.now();
    s.scrollTop = ((s.scrollHeight - s.clientHeight) * ((i * 7919) % 1000)) / 1000;
    await new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    while (document.querySelector(".row .ghost")) await new Promise(requestAnimationFrame);
    all.push((performance.now() - began) / 1000);
  }
  return all;
});
add("console.jump", ...jumps);
add("console.task", await page.evaluate(async () => {
  let longest = 0;
  new PerformanceObserver(l => l.getEntries().forEach(e => (longest = Math.max(longest, e.duration)))).observe({ entryTypes: ["longtask"] });
  const s = document.querySelector(".log-scroll");
  for (let i = 0; i < 100; i++) {
    s.dispatchEvent(new WheelEvent("wheel", { deltaY: 400, bubbles: true, cancelable: true }));
    await new Promise(requestAnimationFrame);
  }
  return longest / 1000;
}));
const heap = async page => {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("HeapProfiler.collectGarbage");
  return (await cdp.send("Runtime.getHeapUsage")).usedSize;
};
add("console.heap", await heap(page));
note("the log");

/** terminal measures a terminal in which a shell waits for commands: keys until their echoes
 * are painted, and what happens while it is flooded. drawn is a function of the page that gives
 * what the terminal shows, and watch one that calls another each time the terminal has drawn
 * something, until what it returns is called. Drawing is part of a frame; the first task after
 * it finds that frame painted. Asking in every frame instead would make the browser wait for
 * frames with the echo. */
async function terminal(page, name, drawn, watch) {
  await page.evaluate(`window.drawn = ${drawn}; window.watchDrawn = ${watch}`);
  const prompt = () => page.waitForFunction(() => /[$#]\s*$/.test(window.drawn()), null, { polling: 50 });
  await prompt();
  await page.keyboard.type("cat\n");
  await page.waitForFunction(() => /cat\s*$/.test(window.drawn()), null, { polling: 50 });
  for (let i = 0; i < 60; i++) {
    await page.evaluate(() => {
      const size = () => window.drawn().replace(/\s/g, "").length;
      const want = size() + 1;
      window.echoed = new Promise(resolve => {
        let at = 0;
        addEventListener("keydown", () => (at = performance.now()), { once: true, capture: true });
        const stop = window.watchDrawn(() => {
          if (!at || size() < want) return;
          stop();
          const { port1, port2 } = new MessageChannel();
          port1.onmessage = () => resolve((performance.now() - at) / 1000);
          port2.postMessage(null);
        });
      });
    });
    await page.keyboard.press(String.fromCharCode(97 + (i % 26)));
    add(name + ".echo", await page.evaluate(() => window.echoed));
  }
  await page.keyboard.press("Control+c");
  await prompt();
  for (let i = 0; i < times; i++) {
    await page.keyboard.type("yes\n");
    await page.waitForFunction(() => /y$/.test(window.drawn().trim()), null, { polling: 50 });
    add(name + ".frames", await page.evaluate(async () => {
      let frames = 0;
      const began = performance.now();
      while (performance.now() - began < 2000) {
        await new Promise(requestAnimationFrame);
        frames++;
      }
      return frames / ((performance.now() - began) / 1000);
    }));
    // The page listens before the key comes: otherwise it would wait for another one.
    await page.evaluate(most => {
      window.shown = new Promise(resolve => {
        let at = 0;
        addEventListener("keydown", e => e.key === "c" && (at ||= performance.now()), { capture: true });
        const look = () => (at && (performance.now() - at > most || /[$#]\s*$/.test(window.drawn())) ? resolve((performance.now() - at) / 1000) : requestAnimationFrame(look));
        look();
      });
    }, patience);
    await page.keyboard.press("Control+c");
    add(name + ".interrupt", await page.evaluate(() => window.shown));
    await prompt();
  }
}

const shell = await server.run({ argv: ["bash", "--norc"], tty: { rows: 40, cols: 120 }, name: "shell" });
await page.goto(`${server.url}/runs/${shell.id}`);
await page.locator(".toolbar button:enabled", { hasText: "Type" }).waitFor();
await page.locator(".term").click();
await page.locator(".term.typing").waitFor();
await terminal(page, "console", '() => document.querySelector(".xterm-rows").textContent', `drew => {
  const o = new MutationObserver(drew);
  o.observe(document.querySelector(".xterm-rows"), { childList: true, characterData: true, subtree: true });
  return () => o.disconnect();
}`);
await server.call("POST", `/v1/runs/${shell.id}/control`, { op: "kill" });
note("the terminal");

// Others that show a terminal in a page. What they show is read from xterm.js, which both use.
const buffer = term => `() => { const b = ${term}.buffer.active, rows = []; for (let i = 0; i < ${term}.rows; i++) rows.push(b.getLine(b.baseY + i)?.translateToString(true) ?? ""); return rows.join("\\n"); }`;

/** beside measures the terminal of another server. */
async function beside(name, argv, at, term) {
  const port = await new Promise(resolve => {
    const s = createServer().listen(0, "127.0.0.1", () => {
      const { port } = s.address();
      s.close(() => resolve(port));
    });
  });
  const child = spawn(argv[0], argv.slice(1).map(a => a.replace("PORT", port)), { stdio: "ignore", cwd: tmpdir(), env: { ...process.env, HOME: tmpdir(), SHELL: "/bin/sh" } });
  const context = await b.newContext({ viewport: { width: 1280, height: 800 } });
  context.setDefaultTimeout(60_000);
  const other = await context.newPage();
  try {
    for (let i = 0; ; i++) {
      const up = await fetch(`http://127.0.0.1:${port}/`).catch(() => null);
      if (up) break;
      if (i > 900 || child.exitCode !== null) throw new Error(name + " does not answer");
      await new Promise(resolve => setTimeout(resolve, 100));
    }
    await at(other, port);
    await other.locator(".xterm").first().waitFor();
    await other.evaluate(`${term}.focus()`);
    await terminal(other, name, buffer(term), `drew => { const o = ${term}.onRender(drew); return () => o.dispose(); }`);
  } catch (e) {
    console.error(`${name}: ${e.stack}`); // the others are measured all the same
  } finally {
    await context.close();
    child.kill();
  }
  note(name);
}

if (process.env.WETTY) await beside("wetty", ["node", process.env.WETTY, "-c", "bash --norc", "--host", "127.0.0.1", "--port", "PORT", "--base", "/"], (page, port) => page.goto(`http://127.0.0.1:${port}/`), "window.wetty_term");

// The terminals of Jupyter, drawn by the xterm.js of this console.
if (process.env.JUPYTER) {
  const token = "bench";
  await beside("jupyter", [process.env.JUPYTER, "--no-browser", "--allow-root", `--IdentityProvider.token=${token}`, "--ServerApp.port_retries=0", "--port=PORT", "--ServerApp.allow_origin=*", "--ServerApp.terminado_settings={'shell_command':['bash','--norc']}"], async (page, port) => {
    const made = await fetch(`http://127.0.0.1:${port}/api/terminals`, { method: "POST", headers: { Authorization: "token " + token } });
    const { name } = await made.json();
    // A page of this machine: others may not connect to it.
    const blank = createServer((_, a) => a.setHeader("Content-Type", "text/html").end("<!doctype html><div id=at></div>"));
    await new Promise(resolve => blank.listen(0, "127.0.0.1", resolve));
    await page.goto(`http://127.0.0.1:${blank.address().port}/`);
    blank.close();
    await page.addScriptTag({ path: process.env.XTERM });
    await page.evaluate(async url => {
      window.term = new Terminal({ rows: 40, cols: 120 });
      term.open(document.getElementById("at"));
      const ws = new WebSocket(url);
      ws.onmessage = m => {
        const [kind, text] = JSON.parse(m.data);
        if (kind === "stdout") term.write(text);
      };
      term.onData(text => ws.send(JSON.stringify(["stdin", text])));
      await new Promise((resolve, reject) => {
        ws.onopen = resolve;
        ws.onclose = e => reject(new Error(`its WebSocket is closed with ${e.code}`));
      });
      ws.send(JSON.stringify(["set_size", 40, 120, 700, 1100]));
    }, `ws://127.0.0.1:${port}/terminals/websocket/${name}?token=${token}`);
  }, "window.term");
}

// asciinema's player: the same text as a recording, to its first frame and to another moment.
if (process.env.ASCIINEMA) {
  const size = Math.min(megabytes, 100);
  const cast = join(tmpdir(), `spool-bench-${process.pid}.cast`);
  const out = createWriteStream(cast);
  out.write(JSON.stringify({ version: 2, width: 120, height: 40 }) + "\n");
  const text = (line + "\r\n").repeat(50);
  const count = Math.ceil((size * 1_048_576) / text.length);
  for (let i = 0; i < count; i++) if (!out.write(JSON.stringify([i / 100, "o", text]) + "\n")) await new Promise(resolve => out.once("drain", resolve));
  out.end();
  await finished(out);
  const files = createServer((q, a) => {
    if (q.url === "/") return a.setHeader("Content-Type", "text/html").end('<!doctype html><link rel=stylesheet href=/player.css><div id=at></div><script src=/player.js></script>');
    createReadStream(q.url === "/cast" ? cast : join(process.env.ASCIINEMA, q.url === "/player.css" ? "asciinema-player.css" : "asciinema-player.min.js")).pipe(a);
  });
  await new Promise(resolve => files.listen(0, "127.0.0.1", resolve));
  const other = await (await b.newContext()).newPage();
  try {
    await other.goto(`http://127.0.0.1:${files.address().port}/`);
    const [load, seek] = await other.evaluate(async end => {
      const began = performance.now();
      const player = AsciinemaPlayer.create("/cast", document.getElementById("at"), { preload: true, fit: false, logger: console });
      await player.seek(0);
      const load = performance.now() - began;
      const then = performance.now();
      await player.seek(end);
      await new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      return [load / 1000, (performance.now() - then) / 1000];
    }, (count / 100) * 0.99);
    // In proportion to the log of the console, which the player cannot hold.
    add("asciinema.load", (load * megabytes) / size);
    add("asciinema.seek", (seek * megabytes) / size);
    add("asciinema.heap", ((await heap(other)) * megabytes) / size);
  } finally {
    files.closeAllConnections();
    files.close();
    rmSync(cast);
  }
}
note("asciinema");
console.log(JSON.stringify(result));
await b.close();
await server.kill("SIGTERM");
process.exit(0);
