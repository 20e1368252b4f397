// More journeys: what is in lines, who may do what, a page that sleeps, and everything by
// keyboard alone.
import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { fair, gone, press, see, until, whole } from "./page.mjs";
import { visit } from "./server.mjs";

export default ({ server, b, owner }) => ({
  async "lines with JSON and files"() {
    const run = await server.shell(`echo '{"level":"info","list":[1,2],"deep":{"a":null}}'; echo 'src/main.go:12:3: undefined: x'; echo '  File "/srv/app.py", line 7, in f'; echo 'http://example.com:80/ and 10.0.0.1:80'`, { name: "structured" });
    await server.wait(run.id);
    await owner.goto(`${server.url}/runs/${run.id}`);
    await owner.locator(".row [data-file]").first().waitFor();
    assert.deepEqual(await owner.locator(".row [data-file]").evaluateAll(all => all.map(e => e.dataset.file)), ["src/main.go:12:3", "/srv/app.py:7"]);
    await owner.click(".row [data-file]");
    await see(owner, "Path copied");
    assert.equal(await owner.evaluate(() => navigator.clipboard.readText()), "/tmp/src/main.go:12:3");
    assert.equal(await owner.locator("[data-json]").count(), 1);
    await owner.click("[data-json]");
    await owner.locator("dialog .tree", { hasText: "level" }).waitFor();
    await fair(owner, "json");
    await press(owner, "Escape");
    await gone(owner, "dialog .tree"); // until then the dialog takes the keys
    await press(owner, "o");
    await owner.locator("dialog .tree").waitFor();
    await press(owner, "Escape");
  },

  async "a recording in the player of asciinema"() {
    const run = await server.run({ argv: ["sh", "-c", "printf 'first\\n'; sleep 0.2; printf '\\033[31mthe last\\033[0m\\n'"], tty: { rows: 12, cols: 60 }, name: "recorded" });
    await server.wait(run.id);
    await owner.goto(`${server.url}/runs/${run.id}`);
    await owner.locator(".xterm-rows", { hasText: "the last" }).waitFor();
    await owner.click("[aria-label='More acts']");
    await owner.click("[role=menuitem]:has-text('Export')");
    const [file] = await Promise.all([owner.waitForEvent("download"), owner.click("text=A recording for asciinema")]);
    const cast = await file.path();
    const player = join(import.meta.dirname, "../node_modules/asciinema-player/dist/bundle/asciinema-player");
    const files = createServer((q, a) => {
      if (q.url === "/") return a.setHeader("Content-Type", "text/html").end("<!doctype html><link rel=stylesheet href=/player.css><div id=at></div><script src=/player.js></script>");
      createReadStream({ "/cast": cast, "/player.css": player + ".css" }[q.url] ?? player + ".min.js").pipe(a);
    });
    await new Promise(resolve => files.listen(0, "127.0.0.1", resolve));
    const page = await (await b.newContext()).newPage();
    try {
      await page.goto(`http://127.0.0.1:${files.address().port}/`);
      await page.evaluate(() => window.AsciinemaPlayer.create("/cast", document.getElementById("at"), { autoPlay: true, terminalLineHeight: 1.2 }) && null);
      await page.locator(".ap-term", { hasText: /first.*the last/s }).waitFor();
    } finally {
      await page.context().close();
      files.closeAllConnections();
      files.close();
    }
  },

  async "tokens"() {
    await owner.goto(server.url + "/settings");
    await owner.fill("#token-name", "laptop");
    await owner.click("text=Make a token");
    const secret = (await owner.locator(".preview pre").textContent()).trim();
    await owner.locator("td", { hasText: "laptop" }).first().waitFor();
    await fair(owner, "settings");
    const guest = await visit(b, server.url);
    await guest.fill("#token", secret);
    await guest.click("button.primary");
    await guest.waitForSelector("nav");
    assert.equal(await guest.locator("nav >> text=New").count(), 0, "it may look only");
    await owner.locator("tr", { hasText: "laptop" }).locator("text=Revoke").click();
    await owner.click("dialog >> button.danger");
    await gone(owner, "td:has-text('laptop')");
    await guest.waitForSelector("#token"); // it is cut off
    await guest.context().close();
  },

  async "a dangerous ask"() {
    const run = await server.run({
      engine: "agent", name: "careless",
      config: { agent: "acp", command: ["node", join(import.meta.dirname, "agent.mjs")], policy: { rule: [{ verdict: "ask", command: ["rm"], retype: true }] } },
    });
    await server.call("POST", `/v1/runs/${run.id}/turns`, { prompt: { text: "Make the tests pass." } });
    await owner.goto(server.url + "/inbox");
    const card = owner.locator(".card.ask", { hasText: "careless" });
    await card.locator("text=type it again").waitFor();
    assert.ok(await card.locator("[data-key='1']").isDisabled());
    await fair(owner, "inbox-dangerous");
    const command = (await card.locator("pre").textContent()).trim();
    await card.locator("input.mono").pressSequentially(command);
    await card.locator("[data-key='1']:enabled").click();
    await owner.locator(".card.ask", { hasText: "careless" }).waitFor({ state: "detached" });
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },

  async "a page that slept"() {
    const run = await server.shell("i=0; while read x; do for n in 1 2 3 4 5 6 7 8 9; do i=$((i+1)); echo woke $i; done; done", { name: "sleeper", stdin: true });
    const say = () => server.write(run.id, "x\n");
    const page = await visit(b, server.open(run.id));
    await say();
    await see(page, "woke 9");
    const cdp = await page.context().newCDPSession(page);
    await cdp.send("Page.setWebLifecycleState", { state: "frozen" });
    for (let i = 0; i < 20; i++) await say();
    for (let total = 0; total < 189; ) ({ total } = await server.call("GET", `/v1/runs/${run.id}/lines?from=-1&count=1`));
    await cdp.send("Page.setWebLifecycleState", { state: "active" });
    await page.locator(".row", { hasText: "woke 189" }).waitFor();
    await say(); // and goes on
    await page.locator(".row", { hasText: "woke 198" }).waitFor();
    await whole(page);
    const numbered = await page.evaluate(() => [...document.querySelectorAll(".row")].every(r => r.querySelector(".x").textContent.trim() === "woke " + r.querySelector(".n").textContent));
    assert.ok(numbered, "each line has its number");
    await page.context().close();
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },

  async "keyboard only"() {
    await server.shell("true", { name: "beside" }); // so that a filter leaves something out
    const run = await server.shell("i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo row $i; done; echo bad >&2; trap 'echo interrupted' INT; while :; do read x; done", { name: "keyed", stdin: true });
    const page = await visit(b, server.open());
    await page.locator(".run-row", { hasText: "keyed" }).waitFor();
    const at = path => page.waitForURL("**" + path);
    for (const [keys, path, title] of [["g i", "/inbox", "Inbox"], ["g n", "/new", "New run"], ["g s", "/settings", "Settings"], ["g d", "/doctor", "Doctor"], ["g r", "/", "Runs"]]) {
      await press(page, keys);
      await at(path);
      await page.locator("h1:not(.sr)", { hasText: title }).waitFor();
    }
    await press(page, "?");
    await see(page, "Show all acts");
    await press(page, "Escape", "Control+k");
    await page.locator("[role=combobox]").waitFor();
    await page.keyboard.type("theme dark");
    await press(page, "Enter");
    await until(page, () => document.documentElement.dataset.theme === "dark");
    await press(page, "/");
    await page.keyboard.type("keyed");
    await until(page, () => document.querySelectorAll(".run-row").length === 1);
    await press(page, "Escape");
    await until(page, () => document.querySelectorAll(".run-row").length > 1);
    await press(page, "j", "j", "k", "ArrowDown", "ArrowUp", "x");
    await see(page, "1 run marked");
    await press(page, "x");
    await gone(page, "text=1 run marked");
    await press(page, "/");
    await page.keyboard.type("keyed");
    await until(page, () => document.querySelectorAll(".run-row").length === 1);
    await press(page, "Enter", "Enter");
    await at("/runs/" + run.id);
    const row = text => page.locator(".row", { hasText: text }).first().waitFor();
    await row("bad");
    await press(page, "g g");
    await row(/row 1$/);
    await page.locator(".follow:not(.on)").waitFor();
    await press(page, "f");
    await page.locator(".follow.on").waitFor();
    await press(page, "g g");
    await page.locator(".follow:not(.on)").waitFor();
    await press(page, "End");
    await page.locator(".follow.on").waitFor();
    await press(page, "/");
    await page.keyboard.type("row 1");
    await see(page, "of 111");
    await press(page, "Enter", "Tab");
    await page.evaluate(() => document.querySelector(".log-scroll").focus());
    const before = await page.locator(".toolbar .hits").first().textContent();
    await press(page, "n");
    await until(page, t => document.querySelector(".toolbar .hits").textContent !== t, before);
    await press(page, "Shift+N");
    await until(page, t => document.querySelector(".toolbar .hits").textContent === t, before);
    await press(page, ":");
    await page.locator("#place").waitFor();
    await page.keyboard.press("Control+a");
    await page.keyboard.type("42");
    await press(page, "Enter");
    await row(/row 42$/);
    await press(page, "y");
    await see(page, "Link copied");
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /\/runs\/.*line=\d+/);
    const times = () => page.locator(".toolbar button", { hasText: "Times:" }).textContent();
    const was = await times();
    await press(page, "t");
    await until(page, t => ![...document.querySelectorAll(".toolbar button")].some(e => e.textContent === t), was);
    await press(page, "w");
    await page.locator(".log.wrap").waitFor();
    await press(page, "w", "e");
    await until(page, () => document.querySelectorAll(".row").length === 1);
    await press(page, "e", "Space");
    await page.locator(".track input:enabled").waitFor();
    await press(page, ",");
    await see(page, "Go live");
    await press(page, ".", "[", "]", "Space", "Space", "Shift+G");
    await gone(page, "text=Go live");
    await press(page, "i");
    await row("interrupted");
    await press(page, "Shift+S");
    await see(page, "Stop this run?");
    await press(page, "Escape");
    await gone(page, "dialog");
    await press(page, "Shift+K");
    await see(page, "Kill this run?");
    await page.locator("dialog button.danger").focus();
    await press(page, "Enter");
    await page.locator(".outcome").waitFor();
    // A terminal is taken with Enter and left with F6, or with Ctrl+Shift+Escape.
    const shell = await server.run({ argv: ["cat"], tty: { rows: 10, cols: 40 }, name: "typed" });
    await page.goto(`${server.url}/runs/${shell.id}`);
    await page.locator(".toolbar button:enabled", { hasText: "Type" }).waitFor();
    for (const leave of ["F6", "Control+Shift+Escape"]) {
      await press(page, "Enter");
      await page.locator(".term.typing").waitFor();
      await page.keyboard.type("abc");
      await press(page, leave);
      await gone(page, ".term.typing");
    }
    await page.locator(".xterm-rows", { hasText: "abcabc" }).waitFor();
    // Cells: sent, brought back, and interrupted.
    const book = await server.run({ engine: "kernel", name: "keyed-book" });
    await page.goto(`${server.url}/runs/${book.id}`);
    await page.locator("#composer").waitFor();
    for (let i = 0; i < 60 && !(await page.evaluate(() => document.activeElement?.id === "composer")); i++) await press(page, "Tab");
    await page.keyboard.type("import time; print('beg' + 'un'); time.sleep(600)");
    await press(page, "Shift+Enter");
    await page.locator(".out pre", { hasText: "begun" }).waitFor();
    await press(page, "ArrowUp");
    await until(page, () => document.getElementById("composer").value.startsWith("import time"));
    await until(page, () => [...document.querySelectorAll("button")].some(b => b.textContent === "Interrupt the turn"));
    await press(page, "Escape", "Escape");
    await see(page, "KeyboardInterrupt");
    await page.context().close();
    for (const id of [shell.id, book.id]) await server.call("POST", `/v1/runs/${id}/control`, { op: "kill" });
  },

  async "a page that stays open"() {
    const seconds = Number(process.env.SOAK ?? 6);
    const run = await server.shell("while :; do head -c 100000 /dev/zero | tr '\\0' 'x' | fold -w 100; sleep 0.1; done", { name: "steady", retention: undefined });
    const page = await visit(b, server.open(run.id));
    await page.locator(".row .x").first().waitFor();
    const cdp = await page.context().newCDPSession(page);
    const heap = async () => {
      await cdp.send("HeapProfiler.collectGarbage");
      return (await cdp.send("Runtime.getHeapUsage")).usedSize / 1e6;
    };
    const rounds = 6;
    const heaps = [];
    for (let i = 0; i < rounds; i++) {
      const last = (await server.call("GET", `/v1/runs/${run.id}`)).last;
      await page.waitForTimeout((seconds * 1000) / rounds);
      assert.ok((await server.call("GET", `/v1/runs/${run.id}?after=${last}&wait_ms=60000`)).last > last, "it goes on");
      heaps.push(await heap());
      assert.ok((await page.locator(".row").count()) <= 300);
    }
    await page.locator(".follow.on").waitFor();
    const slope = (heaps.at(-1) - heaps[1]) / ((seconds * (rounds - 2)) / rounds / 60);
    console.log(`   heap ${heaps.map(h => h.toFixed(1)).join(", ")} MB${seconds >= 300 ? `, ${slope.toFixed(2)} MB a minute` : ""}`);
    assert.ok(heaps.at(-1) < 150, "the heap of a page is bounded");
    if (seconds >= 300) assert.ok(slope <= 1, `it grows by ${slope} MB a minute`);
    await page.context().close();
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },
});
