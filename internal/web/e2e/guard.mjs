// What a page of somebody else can do to the server of a person who is signed in: nothing.
// It is on another port of the same machine, to which the browser sends the cookie, and
// on a name that leads to the server.
import assert from "node:assert/strict";
import { createServer } from "node:http";

/** attack runs in the foreign page. Each way ends, with what it got. */
async function attack({ server, run, patience }) {
  const spec = JSON.stringify({ argv: ["sh", "-c", "true"], name: "stolen", cwd: "/tmp" });
  const later = () => new Promise((_, reject) => setTimeout(() => reject(new Error("no answer")), patience));
  const element = (name, attributes) =>
    new Promise(resolve => {
      const e = document.createElement(name);
      e.onload = () => resolve("loaded");
      e.onerror = () => resolve("refused");
      Object.assign(e, attributes);
      document.body.append(e);
    });
  const form = (method, action, enctype) =>
    new Promise(resolve => {
      const frame = document.createElement("iframe");
      frame.name = "f" + Math.random();
      document.body.append(frame);
      const f = document.createElement("form");
      Object.assign(f, { method, action: server + action, enctype, target: frame.name });
      const field = document.createElement("input");
      Object.assign(field, { name: spec.slice(0, -1) + ',"x":"', value: '"}' });
      f.append(field);
      document.body.append(f);
      frame.onload = () => resolve("answered"); // with what, nobody here can see
      f.submit();
    });
  const socket = (path, protocols) =>
    new Promise(resolve => {
      const ws = new WebSocket(server.replace("http", "ws") + path, protocols);
      ws.onopen = () => {
        ws.send(JSON.stringify({ id: 1, method: "run/list", params: {} }));
        resolve("open");
      };
      ws.onclose = () => resolve("refused");
    });
  const source = (path, credentials) =>
    new Promise(resolve => {
      const s = new EventSource(server + path, { withCredentials: credentials });
      s.onopen = () => resolve("open");
      s.onerror = () => {
        s.close();
        resolve("refused");
      };
    });
  const read = (path, init) => fetch(server + path, { credentials: "include", ...init }).then(r => `${r.type} ${r.status}`, () => "refused");
  const json = { "Content-Type": "application/json" };
  const ways = {
    "read": () => read("/v1/runs"),
    "read without cookies": () => read("/v1/runs", { credentials: "omit" }),
    "read blindly": () => read("/v1/runs", { mode: "no-cors" }),
    "start": () => read("/v1/runs", { method: "POST", headers: json, body: spec }),
    "start with a key": () => read("/v1/runs", { method: "POST", headers: { ...json, "Spool-Key": "x" }, body: spec }),
    "start blindly": () => read("/v1/runs", { method: "POST", mode: "no-cors", body: spec }),
    "kill blindly": () => read(`/v1/runs/${run}/control`, { method: "POST", mode: "no-cors", body: '{"op":"kill"}' }),
    "type blindly": () => read(`/v1/runs/${run}/input`, { method: "POST", mode: "no-cors", body: "stolen\n" }),
    "delete": () => read(`/v1/runs/${run}`, { method: "DELETE" }),
    "sign out": () => read("/v1/session", { method: "DELETE" }),
    "sign in blindly": () => read("/v1/session", { method: "POST", mode: "no-cors", body: '{"code":"x"}' }),
    "call a tool": () => read("/mcp", { method: "POST", mode: "no-cors", body: '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' }),
    "beacon": async () => (navigator.sendBeacon(server + "/v1/runs", new Blob([spec], { type: "text/plain" })), "sent"),
    "post a form": () => form("post", "/v1/runs", "text/plain"),
    "post a form to a run": () => form("post", `/v1/runs/${run}/control`, "application/x-www-form-urlencoded"),
    "send a form": () => form("get", "/v1/runs", ""),
    "image": () => element("img", { src: server + "/v1/runs" }),
    "script": () => element("script", { src: server + "/v1/runs" }),
    "script of the console": () => element("script", { src: server + "/assets/app.js", type: "module" }),
    "style of the console": () => element("link", { href: server + "/assets/style.css", rel: "stylesheet" }),
    "stream": () => source("/v1/watch", false),
    "stream with cookies": () => source(`/v1/runs/${run}/events`, true),
    "socket": () => socket("/v1/rpc", ["spool.v1", "spool-key.x"]),
    "socket without a protocol": () => socket("/v1/rpc"),
    "socket of a run": () => socket(`/v1/runs/${run}/attach`, ["spool.attach.v1"]),
    "frame": () => element("iframe", { src: server + "/", name: "shown" }),
    "frame of the API": () => element("iframe", { src: server + "/v1/runs" }),
  };
  const got = {};
  for (const [name, way] of Object.entries(ways)) got[name] = await Promise.race([way(), later()]).catch(e => "failed: " + e.message);
  return got;
}

export default ({ server, owner }) => ({
  async "a page of somebody else"() {
    const run = await server.shell("read x; echo got $x", { name: "guarded", stdin: true });
    const ids = list => list.map(x => x.id).sort();
    const state = async () => ({
      runs: ids((await server.call("GET", "/v1/runs?limit=1000")).runs),
      tokens: ids((await server.call("GET", "/v1/tokens")).tokens),
      shares: ids((await server.call("GET", "/v1/shares")).shares),
      events: await server.events(run.id),
    });
    const evil = createServer((_, answer) => answer.setHeader("Content-Type", "text/html").end("<!doctype html><title>Win a prize</title><body>"));
    await new Promise(resolve => evil.listen(0, "127.0.0.1", resolve));
    const port = evil.address().port;
    const before = await state();
    try {
      for (const origin of [`http://127.0.0.1:${port}`, `http://evil.test:${port}`]) {
        // In the browser of the person who is signed in.
        const page = await owner.context().newPage();
        const answers = [];
        page.on("response", r => r.url().startsWith(server.url) && answers.push(`${r.status()} ${r.request().method()} ${new URL(r.url()).pathname}`));
        await page.goto(origin + "/");
        const got = await page.evaluate(attack, { server: server.url, run: run.id, patience: 30_000 });
        for (const [way, result] of Object.entries(got)) {
          const blind = /form|beacon|frame/.test(way) ? ["sent", "answered", "loaded", "refused"] : ["refused"];
          assert.ok(blind.includes(result), `${origin}: ${way}: ${result}`);
        }
        assert.ok(answers.length >= 5, "the server was asked: " + answers);
        assert.deepEqual(answers.filter(a => !/^4\d\d /.test(a)), [], "every answer is a refusal");
        for (const frame of page.frames().slice(1)) assert.ok(!(await frame.content()).includes("assets/app.js"), "the console is in no frame");
        // A window of the console is not in reach of the page that opened it.
        const [popup] = await Promise.all([owner.context().waitForEvent("page"), page.evaluate(url => void (window.other = open(url)), server.url + "/")]);
        await popup.waitForSelector("h1");
        assert.equal(await popup.evaluate(() => window.opener), null);
        assert.equal(await page.evaluate(() => window.other.closed), true);
        await popup.close();
        await page.close();
      }
      // A name that leads to the server is not the server's.
      const page = await owner.context().newPage();
      const answer = await page.goto(server.url.replace("127.0.0.1", "evil.test") + "/");
      assert.equal(answer.status(), 403);
      assert.equal(await page.evaluate(() => fetch("/v1/runs").then(r => r.status)), 403);
      await page.close();
    } finally {
      evil.closeAllConnections();
      evil.close();
    }
    assert.deepEqual(await state(), before, "nothing was started, ended or typed");
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
    await owner.goto(server.url + "/");
    await owner.locator(".run-row", { hasText: "guarded" }).waitFor(); // still signed in
  },
});
