// Journeys through the console, in a real browser against a real server. Each is what a
// person does; all of them share a server and its runs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import acts from "./acts.mjs";
import cuts from "./cuts.mjs";
import guard from "./guard.mjs";
import images from "./images.mjs";
import nodes from "./nodes.mjs";
import states from "./states.mjs";
import { bytes, payloads } from "./hostile.mjs";
import { fair, gone, press, see, shots, until, whole } from "./page.mjs";
import { browser, Server, visit, wrong } from "./server.mjs";

const only = process.env.ONLY;

const server = new Server();
await server.start();
const b = await browser();
const owner = await visit(b, server.open());
await owner.waitForSelector("h1:has-text('Runs')");

const journeys = {
  async "sign in"() {
    assert.ok(!owner.url().includes("#"), "the code left the address");
    const spent = server.open();
    const first = await visit(b, spent);
    await first.waitForSelector("nav");
    await see(first, "No runs yet");
    await fair(first, "runs-empty");
    const second = await visit(b, spent);
    await see(second, "This code was used before");
    await fair(second, "sign-in");
    await second.fill("#token", "spool_wrong");
    await second.click("button.primary");
    await second.locator("[role=alert]").waitFor();
    await second.fill("#token", server.token);
    await second.click("button.primary");
    await second.waitForSelector("nav");
    await second.reload();
    await second.waitForSelector("nav");
    await second.goto(server.url + "/settings");
    await second.click("text=Sign out");
    await see(second, "You are signed out");
    await first.context().close();
    await second.context().close();
  },

  async "runs are live"() {
    const made = await server.shell("echo hello; read x", { name: "first", labels: { team: "ml" }, stdin: true });
    await see(owner, "first");
    await owner.locator(".run-row", { hasText: "first" }).locator(".mark.live").waitFor();
    await owner.locator(".run-row", { hasText: "first" }).locator(".news", { hasText: "hello" }).waitFor(); // its last line
    const failed = await server.shell("exit 3", { name: "broken" });
    await server.wait(failed.id);
    await see(owner, "exited 3");
    // The list is loaded again with each filter, and is empty until then.
    await owner.click("text=Failed");
    await owner.locator(".run-row", { hasText: "broken" }).waitFor();
    await gone(owner, ".run-row:has-text('first')");
    await owner.click("text=Failed");
    await owner.locator(".run-row", { hasText: "first" }).waitFor();
    await press(owner, "/");
    await owner.keyboard.type("team ml");
    await gone(owner, ".run-row:has-text('broken')");
    await press(owner, "Enter", "Enter");
    await owner.waitForURL("**/runs/" + made.id);
    await press(owner, "g r");
    await see(owner, "New run");
    await fair(owner, "runs");
    await server.call("POST", `/v1/runs/${made.id}/control`, { op: "kill" });
    await owner.locator(".run-row", { hasText: "first" }).locator(".mark.stopped").waitFor();
    // Runs are marked, and acted on together; what another one deletes disappears.
    await owner.locator(".run-row", { hasText: "broken" }).focus();
    await server.shell("true", { name: "newer" });
    await owner.locator(".run-row", { hasText: "newer" }).waitFor();
    await press(owner, "x");
    await owner.locator(".run-row.chosen", { hasText: "broken" }).waitFor();
    await see(owner, "1 run marked");
    await owner.locator("[role=listitem]", { hasText: "first" }).locator(".pick").click();
    await see(owner, "2 runs marked");
    await fair(owner, "runs-marked");
    await owner.locator("[role=listitem]", { hasText: "first" }).locator(".pick").click();
    await see(owner, "1 run marked");
    await owner.click(".chosen >> text=Delete");
    await owner.click("dialog >> button.danger");
    await gone(owner, ".run-row:has-text('broken')");
    const third = await server.shell("exit 0", { name: "third" });
    await server.wait(third.id);
    await see(owner, "third");
    await server.call("DELETE", "/v1/runs/" + third.id);
    await gone(owner, ".run-row:has-text('third')");
  },

  async "a log"() {
    const run = await server.shell("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i; done; printf '\\033[31mred\\033[0m\\n'; printf '1%%\\r2%%\\r3%%\\n'; echo oops >&2; while read x; do echo got $x; done", { name: "talker", stdin: true });
    const say = text => server.write(run.id, text + "\n");
    await owner.goto(`${server.url}/runs/${run.id}`);
    await see(owner, "oops"); // the end is in view
    await say("one");
    await see(owner, "got one"); // and is followed
    await owner.locator(".row .fg1", { hasText: "red" }).waitFor();
    await owner.locator(".row", { hasText: "3%" }).locator(".updates", { hasText: /^▸ 2 updates$/ }).waitFor();
    await owner.locator(".log-scroll").hover();
    await owner.mouse.wheel(0, -2000);
    await owner.locator(".follow:not(.on)").waitFor();
    const top = () => owner.evaluate(() => document.querySelector(".log-scroll").scrollTop);
    const held = await top();
    await say("two");
    await see(owner, "1 new line");
    assert.equal(await top(), held, "nothing moves under the reader");
    await press(owner, "f");
    await see(owner, "got two");
    // Search, with marks and a link.
    await press(owner, "/");
    await owner.keyboard.type("line 777");
    await see(owner, "1 of 1");
    await owner.locator("mark.at", { hasText: "line 777" }).waitFor();
    assert.ok((await owner.locator(".marks i").count()) === 1);
    await press(owner, "Escape");
    await owner.goto(`${server.url}/runs/${run.id}?line=1500-1502`);
    await owner.locator(".row.at", { hasText: "line 1501" }).waitFor();
    await owner.click("text=Copy text");
    await see(owner, "3 lines copied");
    assert.equal(await owner.evaluate(() => navigator.clipboard.readText()), "line 1500\nline 1501\nline 1502\n");
    await press(owner, "e");
    await owner.locator(".row", { hasText: "oops" }).waitFor();
    assert.equal(await owner.locator(".row").count(), 1);
    await press(owner, "e", ":");
    await owner.locator("#place").fill("12");
    await press(owner, "Enter");
    await owner.locator(".row", { hasText: /^12.*line 12$/ }).waitFor();
    const { seq, t } = (await server.call("GET", `/v1/runs/${run.id}/lines?from=2005&count=1`)).lines[0];
    const second = new Date(Math.floor(Date.parse(t) / 1000) * 1000);
    const then = (await server.call("GET", `/v1/runs/${run.id}/lines?time=${second.toISOString()}&count=1`)).lines[0];
    for (const [place, n] of [[await owner.evaluate(t => new Date(t).toTimeString().slice(0, 8), t), then.n], ["#" + seq, 2005]]) {
      await press(owner, "g g");
      await owner.locator(".row", { hasText: /^1.*line 1$/ }).waitFor();
      await press(owner, ":");
      await owner.locator("#place").fill(place);
      await press(owner, "Enter");
      await gone(owner, "dialog");
      await owner.locator(".row a.n", { hasText: new RegExp(`^${n}$`) }).waitFor();
    }
    await owner.locator(".row a.n", { hasText: /^2000$/ }).click(); // a line that is not loaded yet has a number, and no link
    await owner.waitForURL("**line=2000*");
    await press(owner, "w");
    await owner.locator(".log.wrap").waitFor();
    await press(owner, "Shift+G");
    await see(owner, "got two");
    await press(owner, "w");
    await owner.click("text=Look back");
    await owner.locator(".track input:enabled").waitFor();
    // A place says what is there before anybody goes there.
    await owner.locator(".track").hover();
    await owner.locator(".there", { hasText: /^\d\d:\d\d:\d\d · event [\d,]+.*(line \d+|red|3%|oops|got .*)$/ }).waitFor();
    await fair(owner, "log-there");
    await press(owner, "g g");
    await owner.mouse.move(600, 300);
    await gone(owner, ".there");
    await owner.locator(".track input").focus();
    await press(owner, "Home");
    await owner.locator(".row", { hasText: /^1.*line 1$/ }).waitFor();
    await owner.locator(".there .line").waitFor();
    await press(owner, "Escape");
    await gone(owner, ".there");
    await owner.click("text=Go live");
    await see(owner, "got two");
    await fair(owner, "log");
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
    await owner.locator(".outcome").waitFor();
    await owner.goto(`${server.url}/runs/${run.id}?view=events`);
    await owner.locator(".kind", { hasText: "closed" }).waitFor();
    await fair(owner, "events");
    await owner.goto(`${server.url}/runs/${run.id}?view=facts`);
    await see(owner, "What it used");
    await fair(owner, "facts");
  },

  async "a long log"() {
    const run = await server.shell("seq 1 2000000", { name: "long" });
    await server.wait(run.id);
    await owner.goto(`${server.url}/runs/${run.id}?view=log`);
    await see(owner, "2,000,000 lines");
    await owner.locator(".log-scroll").focus();
    await press(owner, "End");
    await owner.locator(".row", { hasText: /2000000$/ }).waitFor();
    await press(owner, "ArrowUp");
    await owner.mouse.move(600, 500);
    await owner.mouse.wheel(0, -1000);
    await owner.locator(".row", { hasText: /1999920$/ }).waitFor();
    await owner.evaluate(() => {
      const s = document.querySelector(".log-scroll");
      s.scrollTop = (s.scrollHeight - s.clientHeight) / 2;
    });
    await until(owner, () => [...document.querySelectorAll(".row .n")].some(e => Math.abs(Number(e.textContent) - 1_000_000) < 100));
    await whole(owner);
    assert.ok((await owner.locator(".row").count()) < 300);
    const same = await owner.evaluate(() => [...document.querySelectorAll(".row")].every(r => r.querySelector(".n").textContent === r.querySelector(".x").textContent));
    assert.ok(same, "each row has the line of its number");
  },

  async "a terminal"() {
    const run = await server.run({ argv: ["bash", "--norc", "--noprofile"], tty: { rows: 24, cols: 80 }, name: "shell" });
    await owner.goto(`${server.url}/runs/${run.id}`);
    const rows = page => page.locator(".xterm-rows");
    await rows(owner).filter({ hasText: "$" }).waitFor();
    const small = await visit(b, server.open(run.id), { viewport: { width: 320, height: 640 }, hasTouch: true, isMobile: true });
    await rows(small).filter({ hasText: "$" }).waitFor();
    await owner.keyboard.type("zzz");
    await owner.locator(".term").click();
    await owner.locator(".term.typing").waitFor();
    assert.equal(await owner.evaluate(() => document.getAnimations().filter(a => a.effect.getTiming().iterations === Infinity).map(a => a.effect.target.className).join()), "", "an animation would put off every echo by a frame");
    await see(owner, "2 watch");
    await see(small, "types, too");
    await owner.keyboard.type("echo $((40+2)) $COLUMNS\n");
    await rows(owner).filter({ hasText: "42 80" }).waitFor();
    await rows(small).filter({ hasText: "42 80" }).waitFor();
    // The keys of a phone, of which Alt stays pressed for one.
    await small.click(".phone-keys >> text=Alt");
    await small.click(".phone-keys >> text=|");
    await small.click(".phone-keys >> text=Ctrl");
    await small.keyboard.press("c");
    await rows(small).filter({ hasText: "^C" }).waitFor();
    await small.locator(".phone-keys [aria-pressed=false]", { hasText: "Alt" }).waitFor();
    assert.ok(!(await rows(owner).textContent()).includes("zzz"));
    await press(owner, "F6");
    await gone(owner, ".term.typing");
    await gone(small, "text=types, too");
    assert.ok(!(await server.events(run.id)).some(e => e.kind === "resized"), "looking resizes nothing");
    // Several lines are not pasted into a program that takes each at once.
    await press(owner, "Enter");
    await owner.locator(".term.typing").waitFor();
    await owner.keyboard.type("bind 'set enable-bracketed-paste off' ; echo ready\n");
    await rows(owner).filter({ hasText: /ready\s*\$/ }).waitFor();
    await owner.evaluate(() => navigator.clipboard.writeText("echo a\necho b\n"));
    await press(owner, "Control+V");
    await see(owner, "Paste 2 lines?");
    await owner.click("dialog >> text=Cancel");
    const tall = await owner.evaluate(() => document.querySelector(".xterm-rows > div").offsetHeight);
    await owner.click("text=Text view");
    await owner.locator(".term-text", { hasText: "42 80" }).waitFor();
    await owner.click("text=Text view");
    await owner.locator(".term.typing").waitFor();
    await until(owner, tall => document.querySelector(".xterm-rows > div").offsetHeight === tall, tall); // drawn as before
    const word = await owner.locator(".xterm-rows > div", { hasText: /^ready/ }).boundingBox();
    await owner.mouse.dblclick(word.x + 12, word.y + word.height / 2);
    await press(owner, "Control+C");
    await see(owner, "Copied");
    assert.equal(await owner.evaluate(() => navigator.clipboard.readText()), "ready");
    await fair(owner, "terminal");
    await fair(small, "terminal-phone");
    await owner.locator(".run-facts").click();
    await gone(owner, ".term.typing"); // it is left by who clicks elsewhere
    await owner.click("text=Use my size");
    await see(owner, "80×24 →");
    await small.context().close();
    // What it showed before, while it goes on.
    await owner.click("text=Look back");
    await owner.locator(".track input:enabled").waitFor();
    await owner.locator(".track input").focus();
    await press(owner, "Home");
    await until(owner, () => !document.querySelector(".xterm-rows").textContent.includes("42 80"));
    await owner.click("[aria-label=Play]");
    await rows(owner).filter({ hasText: "42 80" }).waitFor();
    await owner.waitForURL("**at=*");
    await fair(owner, "scrubber");
    await owner.click("text=Go live");
    await rows(owner).filter({ hasText: "42 80" }).waitFor();
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },

  async "cells and asks"() {
    const run = await server.run({ engine: "kernel", config: { input: "ask" }, name: "book" });
    await owner.goto(`${server.url}/runs/${run.id}`);
    // What it prints may come before the answer to the request: by then the field is that of the next cell.
    let answered;
    const printed = new Promise(resolve => (answered = resolve));
    await owner.route("**/turns", async r => {
      const response = await r.fetch();
      await printed;
      await r.fulfill({ response });
    });
    await owner.fill("#composer", "print('<b>x</b>')\n6 * 7");
    await press(owner, "Shift+Enter");
    await owner.locator(".out pre", { hasText: /^42$/ }).waitFor();
    await see(owner, "<b>x</b>");
    await owner.fill("#composer", "class P:\n  def _repr_html_(self): return '<h2 id=t>Shown</h2><script>document.getElementById(\"t\").textContent=\"Ran\"</script>'\nP()");
    answered();
    await owner.unrouteAll({ behavior: "wait" });
    await press(owner, "Shift+Enter");
    await owner.frameLocator("iframe").locator("text=Shown").waitFor();
    await owner.click("text=Run scripts");
    await owner.frameLocator("iframe").locator("text=Ran").waitFor();
    await owner.fill("#composer", "import base64\nclass G:\n  def _repr_png_(self): return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')\nG()");
    await press(owner, "Shift+Enter");
    await until(owner, () => [...document.querySelectorAll(".out img")].some(i => i.naturalWidth === 1));
    await owner.fill("#composer", "1/0");
    await press(owner, "Shift+Enter");
    await see(owner, "ZeroDivisionError");
    await owner.fill("#composer", "name = input('who are you? ')\nprint('hello', name)");
    await press(owner, "Shift+Enter");
    await owner.locator(".card.ask").waitFor();
    await fair(owner, "cells");
    const other = await visit(b, server.open(), { colorScheme: "dark", viewport: { width: 320, height: 640 } });
    await other.click("nav >> text=Inbox");
    await see(other, "who are you?");
    const third = await visit(b, server.open());
    await third.click("nav >> text=Inbox");
    await see(third, "who are you?");
    await fair(other, "inbox-phone");
    await other.click("text=Not now");
    await see(other, "put off");
    await other.click("text=put off");
    await other.fill(".card input", "Ann");
    await other.click(".card >> text=Send");
    await see(other, "Nobody waits for you");
    await see(owner, "hello Ann");
    await gone(owner, ".card.ask");
    await third.locator(".settled", { hasText: "Answered by owner" }).waitFor();
    await fair(third, "inbox-answered");
    await third.context().close();
    // The line of time: as it was, and mark by mark.
    await owner.click("text=Look back");
    await owner.locator(".track input:enabled").waitFor();
    await owner.locator(".ticks .exception").waitFor();
    await owner.locator(".track input").focus();
    await press(owner, "Home");
    await gone(owner, "text=ZeroDivisionError");
    await press(owner, "]", "]");
    await owner.click("text=Go live");
    await see(owner, "hello Ann");
    await other.context().close();
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },

  async "an agent"() {
    const run = await server.run({ engine: "agent", name: "helper", config: { agent: "acp", command: ["node", join(import.meta.dirname, "agent.mjs")] } });
    await server.call("POST", `/v1/runs/${run.id}/turns`, { prompt: { text: "Make the tests pass." } });
    await owner.goto(server.url + "/inbox");
    await see(owner, "rm -rf build");
    await owner.click("text=Why?");
    await see(owner, "Stale objects break the link step.");
    await fair(owner, "inbox");
    await press(owner, "z");
    await owner.click("text=put off");
    // What is sent is not answered yet: the log says when.
    let go;
    const held = new Promise(resolve => (go = resolve));
    await owner.route("**/asks/*", async r => (await held, r.continue()));
    await press(owner, "1");
    await see(owner, "Answering…");
    assert.ok(await owner.locator("[data-key='1']").isDisabled());
    await fair(owner, "inbox-answering");
    go();
    await owner.unrouteAll({ behavior: "wait" });
    await see(owner, "Nobody waits for you");
    await owner.goto(`${server.url}/runs/${run.id}`);
    await owner.locator(".said strong", { hasText: "done" }).waitFor();
    await see(owner, "Look at the failures"); // the plan
    await owner.locator(".action .mark.ok").first().waitFor();
    assert.equal(await owner.locator(".said img, .said script").count(), 0);
    await owner.click("text=Look back");
    await owner.locator(".ticks .ask").waitFor();
    await fair(owner, "conversation");
    await owner.locator(".track").hover();
    await owner.locator(".there .line", { hasText: /[a-z]/ }).waitFor();
    await owner.locator(".ticks .ask").click();
    await gone(owner, ".said strong"); // as it was when it asked
    await owner.click("text=Go live");
    await owner.locator(".said strong").waitFor();
    await owner.locator(".track input").focus();
    await press(owner, "Home");
    await gone(owner, ".said strong");
    await owner.click("text=Go live");
    await owner.fill("#composer", "Thanks");
    await press(owner, "Enter");
    await owner.locator(".prompt", { hasText: "Thanks" }).waitFor();
    await see(owner, "You are welcome.");
    await owner.fill("#composer", "Once more");
    await press(owner, "Enter");
    await owner.locator(".card.ask").waitFor();
    await owner.locator(".composer button.primary", { hasText: "Queue" }).waitFor();
    await owner.goto(server.url + "/inbox");
    await see(owner, "rm -rf build");
    await press(owner, "d");
    await see(owner, "Nobody waits for you");
    await owner.goto(`${server.url}/runs/${run.id}`);
    await owner.locator(".aside", { hasText: "no by owner" }).waitFor();
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },

  async "an agent with a policy"() {
    await owner.goto(server.url + "/new");
    await owner.click("main >> text=Agent");
    await until(owner, () => [...document.querySelectorAll("#agent option")].some(o => o.textContent.startsWith("codex")));
    await owner.selectOption("#agent", "acp");
    await owner.fill("#speaks", `node ${join(import.meta.dirname, "agent.mjs")}`);
    await owner.fill("#prompt", "Make the tests pass.");
    await owner.fill("#deny", "rm");
    await owner.locator(".preview", { hasText: "--policy policy.toml acp" }).waitFor();
    await fair(owner, "new-agent");
    await owner.click("main button.primary");
    await owner.locator(".aside", { hasText: /Asked: rm -rf build.* by policy/ }).waitFor();
    await owner.locator(".said strong", { hasText: "done" }).waitFor();
    await server.call("POST", `/v1/runs/${owner.url().split("/").at(-1).split("?")[0]}/control`, { op: "kill" });
  },

  async "a server that is killed"() {
    const run = await server.shell("i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.1; done", { name: "ticker" });
    await owner.goto(`${server.url}/runs/${run.id}`);
    await see(owner, "tick");
    await owner.evaluate(() => (window.same = true));
    // What the header says, also for a moment.
    await owner.evaluate(() => {
      window.said = [];
      new MutationObserver(() => window.said.push(document.querySelector(".strip")?.textContent)).observe(document.querySelector(".top"), { childList: true, subtree: true, characterData: true });
    });
    // What the page asks when a server refuses it, the next one answers: WebSockets are not blocked for that.
    let back;
    const there = new Promise(resolve => (back = resolve));
    await owner.route("**/v1/server", async r => (await there, r.continue()));
    for (const [signal, words] of [["SIGKILL", "Connection lost"], ["SIGTERM", "The server says: restarting"]]) {
      await server.kill(signal);
      try {
        await see(owner, words);
        assert.ok(await owner.locator(".run-acts button", { hasText: "Stop" }).isDisabled());
        await fair(owner, signal === "SIGKILL" ? "lost" : "restarting");
      } finally {
        await server.start();
        back();
      }
      await until(owner, () => window.said.some(t => /Connected again: caught up \d+ events?/.test(t)));
      await gone(owner, ".strip");
      await see(owner, "Connected · WebSocket");
      const shifts = await owner.evaluate(() => window.shifts.splice(0));
      assert.deepEqual(shifts.filter(s => s.value > 0.01), [], "nothing moves when it is there again");
      await owner.evaluate(() => (window.said.length = 0));
    }
    await owner.unrouteAll({ behavior: "wait" });
    const now = (await server.call("GET", `/v1/runs/${run.id}/lines?from=-1&count=1`)).total;
    await until(owner, n => [...document.querySelectorAll(".row .n")].some(e => Number(e.textContent) > n), now);
    assert.ok(await owner.evaluate(() => window.same), "without a reload");
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },

  async "the ladder"() {
    const page = await visit(b, server.open());
    await page.waitForSelector("nav");
    await page.addInitScript(() => {
      window.WebSocket = class extends EventTarget {
        readyState = 0;
        constructor() {
          super();
          setTimeout(() => this.onclose?.({ code: 1006, reason: "" }));
        }
        close() {}
      };
    });
    await page.reload();
    await see(page, "WebSocket is blocked on the way");
    const run = await server.shell("echo streamed; read x; echo more", { name: "laddered", stdin: true });
    await page.locator(".run-row", { hasText: "laddered" }).waitFor();
    await page.click("footer >> text=Doctor");
    await page.click("main >> text=Long polling");
    await see(page, "Connected · Long polling");
    const kernel = await server.run({ engine: "kernel", name: "polled" });
    await page.click("nav >> text=Runs");
    await page.locator(".run-row", { hasText: "polled" }).click();
    await page.fill("#composer", "'by ' + 'poll'");
    await press(page, "Shift+Enter");
    await page.locator(".out pre", { hasText: "by poll" }).waitFor();
    await page.goto(server.url + "/doctor");
    await page.click("text=Examine");
    await see(page, "Frames come as they are sent");
    await page.locator(".finding", { hasText: "Waiting" }).waitFor();
    await fair(page, "doctor");
    await page.context().close();
    for (const id of [run.id, kernel.id]) await server.call("POST", `/v1/runs/${id}/control`, { op: "kill" });
  },

  async "start and share"() {
    await owner.goto(server.url + "/new");
    await owner.click("main >> text=Command"); // the form remembers the last one
    await owner.fill("#command", "/nonexistent/program");
    await owner.uncheck("#shell");
    await owner.click("main button.primary");
    await owner.locator(".wrong", { hasText: "no such file or directory" }).waitFor();
    await fair(owner, "new-failed");
    await owner.check("#shell");
    await owner.fill("#command", "echo started here; sleep 60");
    await fair(owner, "new");
    await owner.click("main button.primary");
    await owner.locator(".row", { hasText: "started here" }).waitFor();
    const id = owner.url().split("/").at(-1).split("?")[0];
    await owner.click("text=Share");
    await owner.click("text=Make an address");
    const url = (await owner.locator("dialog .preview pre").textContent()).trim();
    await fair(owner, "share");
    const guest = await visit(b, url);
    await see(guest, "started here");
    assert.equal(await guest.locator("button:has-text('Stop')").count(), 0);
    await guest.click("nav >> text=Runs");
    await guest.locator(".run-row").first().waitFor();
    assert.equal(await guest.locator(".run-row").count(), 1);
    await guest.goto(server.url + "/runs/nosuchrun");
    await see(guest, "There is no such run");
    await fair(guest, "no-run");
    await press(owner, "Escape");
    await owner.click("[aria-label='More acts']");
    await owner.click("[role=menuitem]:has-text('Export')");
    const saved = owner.waitForEvent("download");
    await owner.click("dialog >> text=a JSON object a line");
    assert.match(readFileSync(await (await saved).path(), "utf8"), /started here/);
    await owner.click("main >> text=Stop");
    await owner.click("dialog >> button.danger");
    await owner.locator(".outcome").waitFor();
    await owner.click("[aria-label='More acts']");
    await owner.click("[role=menuitem]:has-text('Delete')");
    await owner.click("dialog >> button.danger");
    await see(owner, "Deleted");
    await assert.rejects(server.call("GET", "/v1/runs/" + id));
    await guest.context().close();
  },

  async "hostile output"() {
    const script = `echo ${bytes} | base64 -d; head -c 3000000 /dev/zero | tr '\\0' a; echo; i=0; while [ $i -lt 2000 ]; do printf '%d\\r' $i; i=$((i+1)); done; echo; echo end of it`;
    for (const tty of [undefined, { rows: 24, cols: 80 }]) {
      const run = await server.run({ argv: ["sh", "-c", script], name: "<img src=x onerror=alert(1)>" + (tty ? "t" : ""), ...(tty && { tty }), labels: { "x": "</script>" } });
      await server.wait(run.id);
      for (const view of tty ? ["terminal", "log"] : ["log", "events", "facts"]) {
        await owner.goto(`${server.url}/runs/${run.id}?view=${view}`);
        await owner.locator({ terminal: ".xterm-rows >> text=end of it", log: ".row .x", events: ".events td", facts: ".facts dd" }[view]).first().waitFor();
        if (view === "log") {
          await press(owner, "Shift+G");
          await see(owner, "end of it");
          await press(owner, "g g");
          await see(owner, "<body onload=");
          assert.deepEqual(await owner.locator(".row a[href]:not(.n)").evaluateAll(all => all.map(a => a.href).filter(h => !/^(https?|mailto):/.test(h))), []);
          for (let i = 0; i < 6; i++) {
            await press(owner, "PageDown");
            await whole(owner);
          }
        }
      }
    }
    await owner.goto(server.url + "/");
    await owner.locator(".run-row").first().waitFor();
    assert.equal(await owner.locator("main img").count(), 0);
    // The same, said by an agent and shown by a cell.
    const agent = await server.run({ engine: "agent", name: "hostile", config: { agent: "acp", command: ["node", join(import.meta.dirname, "agent.mjs")] } });
    await server.call("POST", `/v1/runs/${agent.id}/turns`, { prompt: { text: "Say: " + payloads.join("\n\n") } });
    await owner.goto(`${server.url}/runs/${agent.id}`);
    await see(owner, "That was all.");
    assert.equal(await owner.locator(".said img, .said script, .said iframe, .said svg, .said form, .said style").count(), 0);
    assert.deepEqual(await owner.locator(".said a[href]").evaluateAll(all => all.map(a => a.href).filter(h => !/^(https?|mailto):/.test(h))), []);
    assert.equal(await owner.evaluate(() => ({}).polluted), undefined);
    await server.call("POST", `/v1/runs/${agent.id}/control`, { op: "kill" });
  },

  async "every screen in every theme"() {
    await owner.goto(server.url + "/settings");
    await owner.click("text=Dark");
    await fair(owner, "settings-dark", ["dark"]);
    await owner.click("text=Keys of one letter");
    await owner.locator("h1").click();
    await press(owner, "g i");
    await press(owner, "Control+K");
    await owner.locator("dialog").waitFor();
    assert.ok(owner.url().endsWith("/settings"), "keys of one letter are off");
    await press(owner, "Escape");
    await owner.click("text=Keys of one letter");
    for (const [path, name] of [["/", "runs"], ["/inbox", "inbox-empty"], ["/new", "new"]]) {
      await owner.goto(server.url + path);
      await owner.waitForSelector("h1");
      await owner.waitForLoadState("networkidle");
      await fair(owner, name + "-dark", ["dark"]);
    }
    const closed = (await server.call("GET", "/v1/runs?name=talker")).runs[0];
    if (closed) {
      await owner.goto(`${server.url}/runs/${closed.id}`);
      await owner.locator(".row .x").first().waitFor();
      await fair(owner, "log-dark", ["dark"]);
      await owner.setViewportSize({ width: 320, height: 640 });
      await fair(owner, "log-dark-phone", ["dark"]);
      await owner.goto(server.url + "/");
      await owner.locator(".run-row").first().waitFor();
      await fair(owner, "runs-dark-phone", ["dark"]);
      await owner.setViewportSize({ width: 1280, height: 800 });
    }
    // At 200 % nothing is lost.
    await owner.setViewportSize({ width: 640, height: 400 });
    for (const path of ["/", "/new", "/settings", ...(closed ? ["/runs/" + closed.id] : [])]) {
      await owner.goto(server.url + path);
      await owner.waitForSelector("h1");
      await fair(owner, "zoom" + path.slice(0, 9).replaceAll("/", "-"), ["light"]);
    }
    await owner.setViewportSize({ width: 1280, height: 800 });
    await owner.emulateMedia({ reducedMotion: "reduce", forcedColors: "active" });
    await owner.goto(server.url + "/");
    await owner.locator(".run-row").first().waitFor();
    assert.equal(await owner.evaluate(() => document.getAnimations().length), 0, "nothing moves");
    await owner.emulateMedia({ reducedMotion: null, forcedColors: null });
    await owner.reload();
    await owner.locator(".run-row").first().waitFor();
    await press(owner, "?");
    await see(owner, "Show all acts");
    await fair(owner, "keys-dark", ["dark"]);
    await press(owner, "Escape", "Control+K");
    await owner.locator("[role=combobox]").waitFor();
    await owner.keyboard.type("theme light");
    await press(owner, "Enter");
    await until(owner, () => document.documentElement.dataset.theme === "light");
    // What follows is looked at in both.
    await press(owner, "Control+K");
    await owner.locator("[role=combobox]").waitFor();
    await owner.keyboard.type("theme as the system");
    await press(owner, "Enter");
    await until(owner, () => document.documentElement.dataset.theme === "system");
  },
};

const all = { ...journeys, ...acts({ server, b, owner }), ...states({ server, b, owner }), ...images({ server, b, owner }), ...cuts({ server, b }), ...guard({ server, owner }), ...nodes({ b }) };
let failed = 0;
for (const [name, journey] of Object.entries(all)) {
  if (only ? !name.match(only) : name === "keyboard only") continue; // which make torture does
  const began = Date.now();
  try {
    await journey();
    assert.deepEqual(wrong, []);
    console.log(`ok ${name} (${Date.now() - began} ms)`);
  } catch (e) {
    failed++;
    console.log(`FAILED ${name}: ${e.stack}`);
    const shown = await owner.evaluate(() => `${location.href}\n${document.body.innerText}`).catch(e => e.message);
    console.log(`The page of the owner then: ${shown.slice(0, 4000)}`);
    if (shots) await owner.screenshot({ path: join(shots, "failed.png") }).catch(() => {});
    for (const w of wrong.splice(0)) console.log(w);
    if (process.env.STOP) break;
  }
}
await b.close();
await server.kill("SIGTERM");
process.exit(failed ? 1 : 0);
