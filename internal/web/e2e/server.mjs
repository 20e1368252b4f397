// A server of Spool for journeys, its API for preparing them, and a browser.
import { execFileSync, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const { SPOOL_PROGRAM: program, SPOOL_STATE: state, CHROMIUM: executablePath } = process.env;

export class Server {
  url = "";
  #child;
  #state;
  #args;

  constructor(dir = state, ...args) {
    this.#state = dir;
    this.#args = args;
  }

  /** start starts the server; again means at the same address. */
  async start() {
    const listen = this.url ? this.url.replace("http://", "") : "127.0.0.1:0";
    this.#child = spawn(program, ["serve", "--state", this.#state, "--listen", listen, ...this.#args], { stdio: ["ignore", "pipe", "ignore"] });
    const lines = createInterface({ input: this.#child.stdout });
    this.url = await new Promise((resolve, reject) => {
      lines.once("line", resolve);
      this.#child.once("exit", code => reject(new Error("the server ended with " + code)));
    });
    this.token = readFileSync(join(this.#state, "server-token"), "utf8").trim();
  }

  async kill(signal = "SIGKILL") {
    const ended = new Promise(resolve => this.#child.once("exit", resolve));
    this.#child.kill(signal);
    await ended;
  }

  /** keeper is the process that keeps the runs. */
  keeper() {
    for (const pid of readdirSync("/proc").filter(n => /^\d+$/.test(n)))
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
        if (words[1] === "keeper-role" && words.includes(this.#state)) return Number(pid);
      } catch {
        // it has ended meanwhile
      }
    throw new Error("no keeper");
  }

  /** files are the paths of the log of a run. */
  files(id) {
    return readdirSync(join(this.#state, "runs")).filter(f => f.startsWith(id)).sort().map(f => join(this.#state, "runs", f));
  }

  /** code makes an address that signs in once. */
  open(...args) {
    return execFileSync(program, ["open", "--state", this.#state, "--print", ...args], { encoding: "utf8" }).trim();
  }

  async call(method, path, body) {
    const answer = await fetch(this.url + path, {
      method,
      headers: { Authorization: "Bearer " + this.token, ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  /** write writes to the standard input of a run. */
  async write(id, text) {
    const answer = await fetch(`${this.url}/v1/runs/${id}/input`, { method: "POST", headers: { Authorization: "Bearer " + this.token, "Content-Type": "application/octet-stream" }, body: text });
    if (!answer.ok) throw new Error(`write to run ${id}: ${answer.status} ${await answer.text()}`);
  }

  run(spec) {
    return this.call("POST", "/v1/runs", { cwd: "/tmp", env_policy: { set: { TERM: "xterm-256color", PS1: "$ " } }, ...spec });
  }

  shell(script, more = {}) {
    return this.run({ argv: ["sh", "-c", script], ...more });
  }

  wait(id) {
    return this.call("GET", `/v1/runs/${id}?state=closed&wait_ms=50000`);
  }

  events(id) {
    return this.call("GET", `/v1/runs/${id}/events?max_bytes=8388608`).then(p => p.events);
  }
}

export async function browser() {
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--enable-unsafe-swiftshader", "--host-resolver-rules=MAP evil.test 127.0.0.1"] });
}

/** wrong collects what must not happen in any page. */
export const wrong = [];

export async function visit(b, url, options = {}) {
  const context = await b.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(Number(process.env.PATIENCE ?? 90_000));
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: new URL(url).origin });
  await context.addInitScript(() => {
    // What moved although nobody did anything.
    window.shifts = [];
    new PerformanceObserver(l => {
      for (const e of l.getEntries())
        if (!e.hadRecentInput) window.shifts.push({ rows: e.sources.every(s => s.node?.classList?.contains("row")), value: e.value, at: Math.round(e.startTime), what: e.sources.map(s => `${s.node?.nodeName} ${s.node?.className} ${Math.round(s.previousRect.y)}→${Math.round(s.currentRect.y)}`).slice(0, 3) });
    }).observe({ type: "layout-shift", buffered: true });
  });
  const page = await context.newPage();
  watch(page, new URL(url).origin);
  await page.goto(url);
  await page.locator("h1").first().waitFor(); // a page that is left before knows nothing of its session
  return page;
}

export function watch(page, origin) {
  page.on("dialog", d => {
    wrong.push("a dialog: " + d.message());
    void d.dismiss();
  });
  page.on("pageerror", e => wrong.push("an error: " + e.message + "\n" + e.stack));
  page.on("request", r => {
    const url = r.url();
    if (!url.startsWith(origin) && !url.startsWith("blob:" + origin) && !url.startsWith("data:")) wrong.push("a request to " + url);
  });
  page.on("console", m => {
    const text = m.text();
    if (/Content Security Policy|Trusted ?Type/i.test(text) && !/sandboxed/.test(text)) wrong.push("a violation: " + text);
  });
}
