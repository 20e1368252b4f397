// Journeys through the states that only something wrong leads to: output that is missing, a
// log that is damaged, a page that is far behind or has been alone for long, an ask that
// nobody answers.
import assert from "node:assert/strict";
import { readFileSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fair, gone, press, see, until, whole } from "./page.mjs";
import { visit } from "./server.mjs";

export default ({ server, b, owner }) => ({
  async "output that is missing"() {
    const long = await server.shell("seq 1 30000; exit 0", { name: "too long", limits: { output_bytes: 100_000 } });
    // Longer than a file of the log: without the first, the beginning is gone.
    const old = await server.shell("yes 0123456789012345678901234567890123456789 | head -c 70000000; echo; echo the end", { name: "trimmed" });
    // The damage is in another event than the first lines, which are of another stream.
    const damaged = await server.shell("i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo line $i; done; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i >&2; done", { name: "damaged" });
    for (const run of [long, old, damaged]) while ((await server.wait(run.id)).state !== "closed");
    const [first, ...rest] = server.files(old.id);
    assert.ok(rest.length > 0);
    unlinkSync(first);
    const [file] = server.files(damaged.id);
    const bytes = readFileSync(file);
    bytes[bytes.indexOf("line 2000\n")] ^= 1;
    writeFileSync(file, bytes);
    await server.kill(); // the next one knows only what is in files
    await server.start();
    const note = text => owner.locator(".row.gap", { hasText: text });
    await owner.goto(`${server.url}/runs/${long.id}`);
    await see(owner, "lines"); // they are counted
    await press(owner, ":");
    const total = (await server.call("GET", `/v1/runs/${long.id}/index`)).marks.find(m => m.kind === "truncated").line;
    await owner.locator("#place").fill(String(total));
    await press(owner, "Enter");
    await note("of stdout dropped here").waitFor();
    await fair(owner, "truncated");
    await owner.goto(`${server.url}/runs/${old.id}`);
    await note(/Events 1–\d+ are no longer kept/).waitFor();
    await fair(owner, "gap");
    await press(owner, "Shift+G");
    await see(owner, "the end");
    await owner.goto(`${server.url}/runs/${damaged.id}`);
    await owner.locator(".row", { hasText: /line 1$/ }).waitFor();
    await press(owner, "Shift+G");
    await note("This log is damaged from event").waitFor();
    await whole(owner);
    assert.match(await owner.locator(".row:not(.gap)").last().textContent(), /line \d+$/); // what precedes it
    await fair(owner, "damaged");
    await owner.goto(`${server.url}/runs/${damaged.id}?view=events`);
    await owner.locator(".wrong", { hasText: "corrupt" }).waitFor();
    await owner.locator(".events td").first().waitFor();
  },

  async "a page that is far behind"() {
    const run = await server.run({ argv: ["sh", "-c", "read x; yes | head -c 8000000; echo the last"], tty: { rows: 24, cols: 80 }, name: "hurried" });
    const page = await visit(b, server.open(run.id));
    await page.locator(".toolbar button:enabled", { hasText: "Type" }).waitFor();
    const cdp = await page.context().newCDPSession(page);
    await cdp.send("Debugger.enable");
    const stopped = new Promise(resolve => cdp.once("Debugger.paused", resolve));
    await cdp.send("Debugger.pause"); // the page does nothing at all
    await stopped;
    await server.write(run.id, "go\n");
    while ((await server.wait(run.id)).state !== "closed");
    await cdp.send("Debugger.resume");
    await cdp.send("Debugger.disable");
    await page.locator(".skipped", { hasText: "skipped to stay live" }).waitFor();
    await page.locator(".xterm-rows", { hasText: "the last" }).waitFor();
    await fair(page, "behind");
    await page.click("text=Replay them");
    await page.locator(".scrubber .track").waitFor();
    await until(page, () => !document.querySelector(".xterm-rows").textContent.includes("the last"));
    await page.context().close();
  },

  async "a log that comes late, and one that is empty"() {
    const run = await server.shell("read x", { name: "silent", stdin: true });
    let go;
    const held = new Promise(resolve => (go = resolve));
    for (const part of ["lines", "index"]) await owner.route(`**/${part}?*`, async r => (await held, r.continue()));
    await owner.goto(`${server.url}/runs/${run.id}`);
    await owner.locator(".skeleton[aria-label='Loading the log']").waitFor();
    await fair(owner, "loading");
    go();
    await see(owner, "No output yet");
    await fair(owner, "log-empty");
    await owner.unrouteAll({ behavior: "wait" });
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },

  async "a log that grows by much at once"() {
    const run = await server.shell("echo first; read x; yes 0123456789012345678901234567890123456789 | head -c 40000000; echo; echo the very end; read y", { name: "burst", stdin: true });
    await owner.goto(`${server.url}/runs/${run.id}`);
    await see(owner, "1 line");
    await server.write(run.id, "x\n");
    await owner.locator(".row", { hasText: "the very end" }).waitFor();
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },

  async "a terminal with WebGL"() {
    const run = await server.run({ argv: ["sh", "-c", "printf 'drawn \\033[31mred\\033[0m\\n'; read x"], tty: { rows: 24, cols: 80 }, name: "drawn" });
    const page = await visit(b, server.open());
    await page.goto(server.url + "/settings");
    await page.click("text=Draw terminals with WebGL");
    await page.goto(`${server.url}/runs/${run.id}`);
    const canvas = page.locator(".xterm-screen canvas:not(.xterm-link-layer)");
    await canvas.waitFor();
    await fair(page, "terminal-webgl");
    // The driver takes it away: it is drawn as others are.
    await canvas.evaluate(c => c.getContext("webgl2").getExtension("WEBGL_lose_context").loseContext());
    await page.locator(".xterm-rows", { hasText: "drawn red" }).waitFor();
    await canvas.waitFor({ state: "detached" });
    await page.context().close();
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },

  async "a page that is alone for long"() {
    const run = await server.shell("echo before; read x", { name: "left", stdin: true });
    const page = await visit(b, server.open());
    await page.clock.install();
    await page.goto(`${server.url}/runs/${run.id}`);
    await see(page, "before");
    await server.kill();
    try {
      await see(page, "Connection lost");
      await page.clock.fastForward(61_000);
      await page.locator("main.stale").waitFor();
      await page.locator(".strip", { hasText: /What you see is up to event \d+, as of / }).waitFor();
      await fair(page, "offline");
    } finally {
      await server.start();
    }
    await page.clock.fastForward(61_000); // it tries again at times
    await gone(page, "main.stale");
    await page.context().close();
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },

  async "a run whose end nobody saw"() {
    const run = await server.shell("echo begun; exec sleep 300", { name: "orphan" });
    await owner.goto(`${server.url}/runs/${run.id}`);
    await see(owner, "begun");
    process.kill(server.keeper(), "SIGKILL");
    await owner.locator(".outcome.unknown", { hasText: "Nobody saw how it ended" }).waitFor();
    await fair(owner, "unknown");
  },

  async "an ask that nobody answers"() {
    const run = await server.run({ engine: "agent", name: "lonely", config: { agent: "acp", command: ["node", join(import.meta.dirname, "agent.mjs")], ask_timeout_ms: 500 } });
    await server.call("POST", `/v1/runs/${run.id}/turns`, { prompt: { text: "Make the tests pass." } });
    await owner.goto(`${server.url}/runs/${run.id}`);
    await owner.locator(".aside", { hasText: /Asked: rm -rf build.* nobody answered in \d+ ms: denied/ }).waitFor();
    await fair(owner, "ask-expired");
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },
});
