// Measures the console in a real browser: node e2e/bench.mjs [MEGABYTES]. Prints one JSON
// object: metrics with their values, in seconds and bytes. Beside it, in the same browser,
// the player of asciinema, if ASCIINEMA names the directory of its files.
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
const page = await visit(b, server.open());
await page.locator(".run-row").first().waitFor();

// The page, from nothing to the first paint and to the list of runs.
for (let i = 0; i < times * 2; i++) {
  add("console.usable", await seconds(() => page.reload().then(() => page.locator(".run-row").first().waitFor())));
  add("console.painted", (await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN)) / 1000);
}

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
  await page.waitForFunction(() => /^[\d,]+ lines$/.test(document.querySelector(".toolbar .hits:last-child")?.textContent ?? ""), null, { polling: 20 });
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

/** echoes are the times from keys to their drawn echoes. */
async function echoes(page, metric, n) {
  for (let i = 0; i < n; i++) {
    const want = (await page.evaluate(() => document.querySelector(".xterm-rows").textContent.trim().length)) + 1;
    const drawn = page.evaluate(n => new Promise(resolve => {
      const began = performance.now();
      let at = 0;
      addEventListener("keydown", () => (at = performance.now()), { once: true, capture: true });
      const look = () => (document.querySelector(".xterm-rows").textContent.trim().length >= n ? resolve(performance.now() - (at || began)) : requestAnimationFrame(look));
      look();
    }), want);
    await page.keyboard.press(String.fromCharCode(97 + (i % 26)));
    add(metric, (await drawn) / 1000);
  }
}

// A key until its echo is drawn.
const cat = await server.run({ argv: ["cat"], tty: { rows: 24, cols: 80 }, name: "echo" });
await page.goto(`${server.url}/runs/${cat.id}`);
await page.locator(".toolbar button:enabled", { hasText: "Type" }).waitFor();
await page.locator(".term").click();
await page.locator(".term.typing").waitFor();
await echoes(page, "console.echo", 60);

// A terminal that is flooded: frames, and how long Ctrl-C takes to be seen.
const flood = await server.run({ argv: ["bash", "--norc"], tty: { rows: 40, cols: 120 }, name: "flood" });
await page.goto(`${server.url}/runs/${flood.id}`);
await page.locator(".xterm-rows", { hasText: "$" }).waitFor();
await page.locator(".term").click();
await page.locator(".term.typing").waitFor();
for (let i = 0; i < times; i++) {
  await page.keyboard.type("yes\n");
  await page.waitForFunction(() => /^y/.test(document.querySelector(".xterm-rows").textContent.trim().slice(-2)), null, { polling: 50 });
  add("console.frames", await page.evaluate(async () => {
    let frames = 0;
    const began = performance.now();
    while (performance.now() - began < 2000) {
      await new Promise(requestAnimationFrame);
      frames++;
    }
    return frames / ((performance.now() - began) / 1000);
  }));
  const shown = page.evaluate(() => new Promise(resolve => {
    let at = 0;
    addEventListener("keydown", () => (at = performance.now()), { capture: true });
    const look = () => (at && (performance.now() - at > 60_000 || /\$\s*$/.test(document.querySelector(".xterm-rows").textContent)) ? resolve((performance.now() - at) / 1000) : requestAnimationFrame(look));
    look();
  }));
  await page.keyboard.press("Control+c");
  add("console.interrupt", await shown);
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
console.log(JSON.stringify(result));
await b.close();
for (const run of [cat, flood]) await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" }).catch(() => {});
await server.kill("SIGTERM");
process.exit(0);
