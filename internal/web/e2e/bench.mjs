// Measures the console in a real browser: node e2e/bench.mjs [MEGABYTES]. Prints one JSON
// object.
import { browser, Server, visit } from "./server.mjs";

const megabytes = Number(process.argv[2] ?? 1024);
const server = new Server();
await server.start();
const b = await browser();
const result = { megabytes };
const ms = async f => {
  const began = performance.now();
  await f();
  return Math.round(performance.now() - began);
};
const median = list => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];

const big = await server.shell(`yes 'step 8112 of 40000: loss 0.2131, gradient clipped, learning rate 0.0003, ok' | head -c ${megabytes * 1_000_000}`, { name: "big" });
await server.wait(big.id);
const page = await visit(b, server.open());
await page.locator(".run-row").first().waitFor();

// The page, from nothing to the first list.
const loads = [];
for (let i = 0; i < 5; i++) loads.push(await ms(() => page.reload().then(() => page.locator(".run-row").first().waitFor())));
result.shell_ms = median(loads);

// A log of this size: first rows, exact scrollbar, a jump.
const began = performance.now();
await page.goto(`${server.url}/runs/${big.id}?view=log`);
await page.locator(".row .x").first().waitFor();
result.first_rows_ms = Math.round(performance.now() - began);
await page.waitForFunction(() => /^[\d,]+ lines$/.test(document.querySelector(".toolbar .hits:last-child")?.textContent ?? ""), null, { polling: 20 });
result.exact_scrollbar_ms = Math.round(performance.now() - began);
result.jump_ms = await page.evaluate(async () => {
  const s = document.querySelector(".log-scroll");
  const all = [];
  for (let i = 1; i <= 20; i++) {
    const began = performance.now();
    s.scrollTop = ((s.scrollHeight - s.clientHeight) * ((i * 7919) % 1000)) / 1000;
    await new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    while (document.querySelector(".row .ghost")) await new Promise(requestAnimationFrame);
    all.push(performance.now() - began);
  }
  return Math.round(all.sort((a, b) => a - b)[10]);
});
result.longest_task_ms = await page.evaluate(async () => {
  let longest = 0;
  new PerformanceObserver(l => l.getEntries().forEach(e => (longest = Math.max(longest, e.duration)))).observe({ entryTypes: ["longtask"] });
  const s = document.querySelector(".log-scroll");
  for (let i = 0; i < 100; i++) {
    s.dispatchEvent(new WheelEvent("wheel", { deltaY: 400, bubbles: true, cancelable: true }));
    await new Promise(requestAnimationFrame);
  }
  return Math.round(longest);
});
const cdp = await page.context().newCDPSession(page);
await cdp.send("HeapProfiler.collectGarbage");
result.heap_mb = Math.round((await page.evaluate(() => performance.memory?.usedJSHeapSize ?? 0)) / 1e6);

// A key until its echo is drawn.
const shell = await server.run({ argv: ["cat"], tty: { rows: 24, cols: 80 }, name: "echo" });
await page.goto(`${server.url}/runs/${shell.id}`);
await page.locator(".xterm-rows").waitFor();
await page.locator(".hits", { hasText: "Enter or a click" }).waitFor();
await page.waitForTimeout(500);
await page.locator(".term").click();
await page.locator(".term.typing").waitFor();
const echoes = [];
for (let i = 0; i < 40; i++) {
  const key = String.fromCharCode(97 + (i % 26));
  const want = await page.evaluate(() => document.querySelector(".xterm-rows").textContent.trim().length) + 1;
  const drawn = page.evaluate(n => new Promise(resolve => {
    const began = performance.now();
    let at = 0;
    addEventListener("keydown", () => (at = performance.now()), { once: true, capture: true });
    const look = () => (document.querySelector(".xterm-rows").textContent.trim().length >= n ? resolve(performance.now() - (at || began)) : requestAnimationFrame(look));
    look();
  }), want);
  await page.keyboard.press(key);
  echoes.push(await drawn);
}
echoes.sort((a, b) => a - b);
result.echo_p50_ms = Math.round(echoes[20]);
result.echo_max_ms = Math.round(echoes.at(-1));
console.log(JSON.stringify(result));
await b.close();
await server.call("POST", `/v1/runs/${shell.id}/control`, { op: "kill" }).catch(() => {});
await server.kill("SIGTERM");
process.exit(0);
