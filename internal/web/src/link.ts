// The connection to the server: one WebSocket for everything; where that does not work,
// streams; where something holds these back, requests that wait. The cursors are the
// same on all three, so that each event comes exactly once.
import { signal } from "@preact/signals";
import { Failure, get, key, query, request, runPath, type AskList, type EventPage, type Info, type Presence, type RunList } from "./api.ts";
import { frames } from "./frames.ts";
import { decodeRecords, fromJSON, type LogEvent } from "./record.ts";

export type Rung = "websocket" | "stream" | "poll";

/** LinkState is what the page says about the connection. */
export interface LinkState {
  rung: Rung;
  why: string; // this rung and not a better one
  open: boolean;
  lostAt: number; // when it was lost, in milliseconds; zero if it is not
  reason: string; // of the loss
}

export const link = signal<LinkState>({ rung: "websocket", why: "", open: false, lostAt: 0, reason: "" });

const openFor = 5_000; // a WebSocket must open within this
const firstFrame = 3_000; // a stream must begin within this
const tryAgain = 5 * 60_000; // a better rung
const windowBytes = 1 << 20;

/** Watcher is told what the runs are. */
export interface Watcher {
  run(info: Info): void;
  synced(): void;
  asks(list: AskList): void;
  removed(run: string): void;
}

/** Follower reads the log of a run. */
export interface Follower {
  event(e: LogEvent): void;
  /** end is called once: the log is complete, or cannot be read. */
  end(problem: string): void;
}

abstract class Subscription {
  abort = new AbortController();
  number = 0; // on the WebSocket
  over = false;
  abstract params(): { method: string; params: object };
  abstract stream(signal: AbortSignal): Promise<void>;
  abstract poll(signal: AbortSignal): Promise<void>;
}

class Watch extends Subscription {
  private asksVersion = "";
  ended = 0; // times in a row, by the server
  constructor(readonly since: string, readonly to: Watcher) {
    super();
  }
  params() {
    return { method: "run/watch", params: { filter: { since: this.since }, window_bytes: windowBytes, asks: true } };
  }
  async stream(signal: AbortSignal) {
    for await (const f of await openStream("/v1/watch" + query({ since: this.since }), signal)) {
      if (f.event === "run") this.to.run(JSON.parse(f.data));
      else if (f.event === "sync") this.to.synced();
      else if (f.event === "asks") this.to.asks(JSON.parse(f.data));
      else if (f.event === "removed") this.to.removed(JSON.parse(f.data).run);
      else if (f.event === "end") return noteEnd(JSON.parse(f.data).reason);
    }
  }
  async poll(signal: AbortSignal) {
    const list = await get<RunList>("/v1/runs" + query({ since: this.since, limit: 1000 }), { signal });
    opened();
    for (const info of list.runs) this.to.run(info);
    this.to.synced();
    const asks = await get<AskList>("/v1/asks" + query({ since: this.asksVersion, wait_ms: this.asksVersion ? 2000 : 0 }), { signal });
    if (asks.version !== this.asksVersion) this.to.asks(asks);
    else if (list.runs.length === 0) await pause(500, signal);
    this.asksVersion = asks.version;
  }
}

class Follow extends Subscription {
  constructor(readonly run: string, public cursor: number, readonly to: Follower) {
    super();
  }
  params() {
    return { method: "run/follow", params: { run: this.run, after: this.cursor, window_bytes: windowBytes } };
  }
  /** take accepts an event once; false means that events are missing. */
  take(e: LogEvent): boolean {
    if (e.seq <= this.cursor) return true;
    const gap = e.kind === "truncated" && (e.data?.to ?? 0) >= this.cursor + 1;
    if (e.seq !== this.cursor + 1 && !gap) return false;
    this.cursor = gap ? Math.max(e.seq, e.data.to) : e.seq;
    this.to.event(e);
    if (e.kind === "closed") this.finish("");
    return true;
  }
  finish(problem: string) {
    if (this.over) return;
    this.over = true;
    this.to.end(problem);
    drop(this);
  }
  async stream(signal: AbortSignal) {
    const path = runPath(this.run) + "/events" + query({ after: this.cursor || undefined, base64: true });
    for await (const f of await openStream(path, signal, () => this.finish(""))) {
      if (f.event === "end") return noteEnd(JSON.parse(f.data).reason);
      if (f.id && !this.take(fromJSON(JSON.parse(f.data)))) return;
      if (this.over) return;
    }
  }
  async poll(signal: AbortSignal) {
    const page = await get<EventPage>(runPath(this.run) + "/events" + query({ after: this.cursor || undefined, wait_ms: 25_000 }), { signal });
    opened();
    for (const e of page.events) if (!this.take(fromJSON(e))) return;
    if (page.info.state === "closed" && page.next >= page.info.last) this.finish("");
  }
}

const subscriptions = new Set<Subscription>();

/** watch tells what runs are live, and what changes from now on. */
export function watch(to: Watcher): () => void {
  return begin(new Watch(new Date().toISOString(), to));
}

/** follow reads the log of a run after a cursor, and goes on while the run does. */
export function follow(run: string, after: number, to: Follower): () => void {
  return begin(new Follow(run, after, to));
}

function begin(s: Subscription): () => void {
  subscriptions.add(s);
  if (link.value.rung === "websocket") socket.subscribe(s);
  else void keep(s);
  return () => drop(s);
}

function drop(s: Subscription) {
  if (!subscriptions.delete(s)) return;
  s.over = true;
  s.abort.abort();
  socket.unsubscribe(s);
  if (subscriptions.size === 0) socket.close();
}

function opened() {
  if (link.value.open) return;
  link.value = { ...link.value, open: true, lostAt: 0, reason: "" };
}

function lost(reason: string) {
  if (link.value.lostAt) {
    if (reason && reason !== link.value.reason) link.value = { ...link.value, reason };
    return;
  }
  link.value = { ...link.value, open: false, lostAt: Date.now(), reason };
}

/** restarting is the reason of a loss that the server has announced. */
export const restarting = "the server is restarting";

function noteEnd(reason: string) {
  if (reason === "shutdown") lost(restarting);
  if (reason === "revoked") lost("the session has ended");
}

/** pause waits. */
function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const t = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => { clearTimeout(t); resolve(); }, { once: true });
  });
}

class Held extends Error {}

/** openStream opens a stream whose first frame comes soon: otherwise something on the
 * way holds it back. */
async function openStream(path: string, signal: AbortSignal, complete?: () => void) {
  const answer = await request("GET", path, { accept: "text/event-stream", signal });
  if (answer.status === 204) {
    complete?.();
    return (async function* () {})();
  }
  const all = frames(answer);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => { timer = setTimeout(() => reject(new Held()), firstFrame); });
  const first = all.next();
  first.catch(() => {});
  const got = await Promise.race([first, late]).finally(() => clearTimeout(timer));
  opened();
  return (async function* () {
    if (got.done) return;
    yield got.value;
    yield* all;
  })();
}

/** keep serves a subscription without a WebSocket until it is over or the rung is
 * another one. */
async function keep(s: Subscription) {
  const abort = (s.abort = new AbortController());
  let failures = 0;
  while (!s.over && !abort.signal.aborted && link.value.rung !== "websocket") {
    try {
      if (link.value.rung === "stream") await s.stream(abort.signal);
      else await s.poll(abort.signal);
      failures = 0;
      if (link.value.rung === "stream") await pause(200, abort.signal);
    } catch (e) {
      if (s.over || abort.signal.aborted) return;
      if (e instanceof Held) {
        step("poll", "something on the way holds streams back");
        return;
      }
      if (e instanceof Failure && !e.lost && e.status < 500 && e.status !== 429) {
        if (s instanceof Follow) s.finish(e.message);
        else drop(s);
        return;
      }
      lost("");
      failures++;
      await pause(Math.min(30_000, 500 * 2 ** Math.min(failures, 6)) * (0.75 + Math.random() / 2), abort.signal);
    }
  }
}

/** step goes to another rung of the ladder, with all subscriptions. */
function step(rung: Rung, why: string) {
  if (link.value.rung === rung) return;
  if (rung === "websocket") for (const run of here.keys()) visit(run, ""); // the connection says it
  link.value = { rung, why, open: false, lostAt: link.value.lostAt, reason: link.value.reason };
  socket.close();
  for (const s of subscriptions) {
    s.abort.abort();
    if (rung === "websocket") socket.subscribe(s);
    else void keep(s);
  }
  if (rung !== "websocket") for (const run of here.keys()) tellPresence(run);
}

/** Socket is the WebSocket that all subscriptions share. */
class Socket {
  private ws: WebSocket | null = null;
  private next = 1;
  private byNumber = new Map<number, Subscription>();
  private owed = new Map<number, number>(); // bytes that were taken and not acknowledged
  private openedAt = 0;
  private quick = 0; // closes soon after opening, in a row
  private failures = 0;
  private answers = true; // requests, since a connection was lost: the page came with one
  private timer: ReturnType<typeof setTimeout> | undefined;
  private requests = new Map<number, Subscription>();
  private calls = new Map<number, (result: any) => void>();

  subscribe(s: Subscription) {
    if (!this.ws) this.dial();
    else if (this.ws.readyState === WebSocket.OPEN) this.ask(s);
  }

  unsubscribe(s: Subscription) {
    if (!s.number) return;
    this.byNumber.delete(s.number);
    this.owed.delete(s.number);
    this.send({ method: "run/unfollow", params: { follow: s.number } });
    s.number = 0;
  }

  close() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const ws = this.ws;
    this.ws = null;
    this.forget();
    ws?.close();
  }

  private forget() {
    for (const s of subscriptions) s.number = 0;
    this.byNumber.clear();
    this.owed.clear();
    this.requests.clear();
    this.calls.clear();
  }

  /** call sends a request, if the connection is open. */
  call(method: string, params: object, then: (result: any) => void) {
    if (!this.ws || this.ws.readyState !== WebSocket.OPEN) return;
    const id = this.next++;
    this.calls.set(id, then);
    this.send({ id, method, params });
  }

  private send(message: object) {
    if (this.ws?.readyState === WebSocket.OPEN) this.ws.send(JSON.stringify(message));
  }

  private ask(s: Subscription) {
    s.number = this.next++;
    const { method, params } = s.params();
    this.byNumber.set(s.number, s);
    this.requests.set(s.number, s);
    this.send({ id: s.number, method, params: { follow: s.number, ...params } });
  }

  private dial() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const ws = new WebSocket((location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/v1/rpc", ["spool.v1", "spool-key." + key.get()]);
    ws.binaryType = "arraybuffer";
    this.ws = ws;
    const slow = setTimeout(() => ws.readyState === WebSocket.CONNECTING && ws.close(), openFor);
    ws.onopen = () => {
      clearTimeout(slow);
      this.openedAt = Date.now();
      this.failures = 0;
      opened();
      for (const s of subscriptions) this.ask(s);
      for (const run of here.keys()) tellPresence(run);
    };
    ws.onmessage = m => this.ws === ws && this.message(m.data);
    ws.onclose = e => {
      clearTimeout(slow);
      if (this.ws !== ws) return;
      this.ws = null;
      this.forget();
      this.closed(e);
    };
  }

  private closed(e: CloseEvent) {
    const open = this.openedAt > 0;
    const quick = open && Date.now() - this.openedAt < 10_000;
    this.openedAt = 0;
    if (subscriptions.size === 0) return;
    if (e.code === 4401) {
      // The answer to a request says why, and the page signs in again.
      void get("/v1/server").catch(() => {});
      return lost("the session has ended");
    }
    // A server that ends says so to those that it has, and to those that come.
    const announced = e.code === 1001 || e.code === 1012 || (e.code === 4503 && e.reason === "closing");
    lost(announced ? restarting : "");
    this.quick = quick && !announced ? this.quick + 1 : 0;
    if (!open) {
      // A server that answers requests before and after, and no WebSocket: something
      // refuses these. One that answers only after may have begun meanwhile.
      const before = this.answers;
      void get("/v1/server").then(
        () => {
          this.answers = true;
          if (before) return step("stream", "WebSocket is blocked on the way");
          this.failures = 0;
          this.again();
        },
        () => {
          this.answers = false;
          this.again();
        },
      );
      return;
    }
    this.answers = false;
    if (this.quick >= 3) return step("stream", "WebSocket is cut again and again");
    this.again();
  }

  private again() {
    if (this.ws || this.timer || subscriptions.size === 0 || link.value.rung !== "websocket") return;
    const wait = this.failures++ === 0 ? 250 : Math.min(15_000, 500 * 2 ** Math.min(this.failures, 5));
    this.timer = setTimeout(() => { this.timer = undefined; this.dial(); }, wait * (0.75 + Math.random() / 2));
  }

  /** hurry tries at once what waits for its time. */
  hurry() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.dial();
  }

  private message(data: string | ArrayBuffer) {
    if (typeof data === "string") {
      for (const line of data.split("\n")) if (line) this.text(JSON.parse(line));
      return;
    }
    const b = new Uint8Array(data);
    if (b[0] !== 1) return;
    const number = new DataView(data).getUint32(1, true);
    const s = this.byNumber.get(number);
    if (!(s instanceof Follow)) return;
    let size = 0;
    let whole = true;
    decodeRecords(b.subarray(5), (e, n) => {
      size += n;
      if (whole && !s.over) whole = s.take(e);
    });
    if (s.over) return;
    if (whole) return this.took(number, size);
    this.unsubscribe(s);
    this.ask(s);
  }

  private text(m: { id?: number; method?: string; params?: any; result?: any; error?: { message: string } }) {
    if (m.id !== undefined && !m.method) {
      const then = this.calls.get(m.id);
      this.calls.delete(m.id);
      if (then && !m.error) then(m.result);
      const s = this.requests.get(m.id);
      this.requests.delete(m.id);
      if (!m.error || !s) return;
      if (s instanceof Follow) s.finish(m.error.message);
      return;
    }
    switch (m.method) {
      case "presence/changed":
        return here.get(m.params.run)?.told(m.params);
      case "session/expiring":
        return this.call("session/renew", {}, () => {});
    }
    const s = this.byNumber.get(m.params?.follow);
    if (!s) return;
    switch (m.method) {
      case "asks/changed":
        if (s instanceof Watch) s.to.asks(m.params);
        return;
      case "run/changed":
        if (!(s instanceof Watch)) return;
        if (m.params.info?.state === "removed") s.to.removed(m.params.info.id);
        else if (m.params.info) s.to.run(m.params.info);
        else if (!m.params.error) {
          s.ended = 0;
          opened();
          s.to.synced();
        }
        return this.took(s.number, JSON.stringify(m.params).length);
      case "run/event":
        if (s instanceof Follow) s.take(fromJSON(m.params.event));
        return this.took(s.number, JSON.stringify(m.params.event).length);
      case "run/end":
        if (s instanceof Watch) this.renew(s, m.params.error?.message ?? "");
        else if (s instanceof Follow && m.params.error) s.finish(m.params.error.message);
        return;
    }
  }

  /** renew asks again for a watch that the server has ended: it cannot list all runs, and
   * what the page shows grows old. */
  private renew(s: Watch, why: string) {
    lost(why);
    this.byNumber.delete(s.number);
    this.owed.delete(s.number);
    s.number = 0;
    const ws = this.ws;
    setTimeout(() => this.ws === ws && !s.over && !s.number && this.ask(s), 500 * 2 ** Math.min(++s.ended, 5));
  }

  /** took acknowledges what was taken, not for every message. */
  private took(number: number, bytes: number) {
    const owed = (this.owed.get(number) ?? 0) + bytes;
    if (owed < windowBytes / 4) {
      this.owed.set(number, owed);
      return;
    }
    this.owed.set(number, 0);
    this.send({ method: "run/ack", params: { follow: number, bytes: owed } });
  }
}

const socket = new Socket();

// Who else is at the runs that this page shows. The WebSocket tells; without one the page
// says again and again that it is there.
const page = crypto.getRandomValues(new Uint32Array(4)).join("-");
const sayAgain = 5_000;
const here = new Map<string, { role: string; told(p: Presence): void }>();

function visit(run: string, role: string) {
  request("PUT", "/v1/presence/" + encodeURIComponent(run), { body: { page, role } }).then(
    async a => here.get(run)?.told((await a.json()) as Presence),
    () => {},
  );
}

function tellPresence(run: string) {
  const h = here.get(run);
  if (link.value.rung !== "websocket") return visit(run, h?.role ?? "");
  socket.call("run/presence", { run, role: h?.role ?? "" }, p => here.get(run)?.told(p));
}

/** attend says that this page is at a run, until it is told otherwise. */
export function attend(run: string, told: (p: Presence) => void): () => void {
  here.set(run, { role: "view", told });
  tellPresence(run);
  return () => {
    here.delete(run);
    tellPresence(run);
  };
}

/** setTyping says whether this page types into a run that it is at. */
export function setTyping(run: string, on: boolean) {
  const h = here.get(run);
  const role = on ? "type" : "view";
  if (!h || h.role === role) return;
  h.role = role;
  tellPresence(run);
}

setInterval(() => link.value.rung !== "websocket" && document.visibilityState === "visible" && [...here.keys()].forEach(tellPresence), sayAgain);
setInterval(() => link.value.rung !== "websocket" && link.value.open && !forced && step("websocket", ""), tryAgain);
addEventListener("online", () => (link.value.rung === "websocket" ? socket.hurry() : !forced && step("websocket", "")));
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && socket.hurry());

// A person may choose a rung, to find out what is wrong.
let forced = false;
export function choose(rung: Rung | null) {
  forced = rung !== null;
  step(rung ?? "websocket", rung ? "chosen in the settings" : "");
}
