// What the page knows: who is signed in, the runs that it has seen, the open asks.
import { batch, computed, effect, signal } from "@preact/signals";
import { get, key, onUnauthenticated, post, query, request, runPath, words, Failure, type Ask, type EventPage, type Info, type SessionInfo, type Viewer } from "./api.ts";
import { attend, link, watch } from "./link.ts";
import { route } from "./route.ts";

export type SignIn = { state: "checking" } | { state: "out"; why: string } | { state: "in"; session: SessionInfo } | { state: "lost"; why: string };

export const signedIn = signal<SignIn>({ state: "checking" });
export const session = computed(() => (signedIn.value.state === "in" ? signedIn.value.session : null));

/** may reports whether the page may do something. */
export function may(scope: string): boolean {
  return !!session.value?.scopes.some(s => s === scope || s === "admin" || s === "*" || s.startsWith(scope + ":"));
}

export const infos = signal<ReadonlyMap<string, Info>>(new Map());
export const asks = signal<Ask[]>([]);
export const synced = signal(false);

/** presence is who is at the runs that the page shows. */
export const presence = signal<ReadonlyMap<string, Viewer[]>>(new Map());

/** beAt says that the page is at a run, until what it returns is called. */
export function beAt(run: string): () => void {
  return attend(run, p => (presence.value = new Map(presence.value).set(run, p.viewers)));
}

export const viewerName = (v: Viewer) => (v.device ? `${v.name} (${v.device})` : v.name);

/** Settled is an ask that was answered, or closed, while it was shown. */
export interface Settled {
  ask: Ask;
  text: string;
  at: number;
}
export const settled = signal<Settled[]>([]);
const settledFor = 20_000; // milliseconds; while it is looked at it stays, so that nothing moves
const mostSettled = 50;
/** tidy forgets what was settled a while ago. */
export const tidy = () => (settled.value = settled.peek().filter(s => s.at > Date.now() - settledFor));
const mine = new Set<string>(); // asks that this page has answered

/** answering notes that this page answers an ask. */
export const answering = (a: Ask) => mine.add(a.run + "/" + a.seq);

/** settle shows in the place of an ask that is gone who has answered it. */
async function settle(a: Ask, own: boolean) {
  const one: Settled = { ask: a, text: own ? "You answered" : "Answered", at: Date.now() };
  settled.value = [...settled.peek().slice(1 - mostSettled), one];
  if (own) return;
  const text = await explain(a);
  settled.value = settled.value.map(s => (s === one ? { ...one, text } : s));
}

/** explain looks up who has answered an ask. */
async function explain(a: Ask): Promise<string> {
  let text = "It was closed";
  try {
    const page = await get<EventPage>(runPath(a.run) + "/events" + query({ after: a.seq, kind: ["input", "notice"], max_bytes: 1 << 20 }));
    for (const e of page.events) {
      const d = e.data as any;
      if (e.kind === "input" && d?.kind === "answer" && d.data?.ask === a.seq) {
        const said = typeof d.data.data === "string" ? d.data.data : d.data.error?.message;
        text = `Answered by ${d.data.by || "somebody"}${said && !a.ask.secret ? `: ${said.slice(0, 100)}` : ""}`;
        break;
      }
      if (d?.code === "ask_closed" && d.ask === a.seq) {
        text = d.by === "deadline" ? "Nobody answered in time: denied" : d.text || text;
        break;
      }
    }
  } catch {
    // the run was deleted, or nothing can be known now
  }
  return text;
}

/** now is the time, to the second. */
export const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 1000);

const mostInfos = 8000; // that a page remembers; those that ended long ago go first

// Changes come in bursts; the page is drawn once for each.
let waiting = new Map<string, Info>();
let scheduled = false;

/** gone are runs that were deleted while the page was open. */
export const gone = new Set<string>();

/** older is whether a description was overtaken by one that came before it. */
function older(info: Info, than: Info | undefined): boolean {
  return !!than && (than.last > info.last || (than.state === "closed" && info.state !== "closed"));
}

export function note(list: Iterable<Info>) {
  for (const info of list) if (!older(info, waiting.get(info.id))) waiting.set(info.id, info);
  if (scheduled) return;
  scheduled = true;
  setTimeout(() => {
    scheduled = false;
    const all = new Map(infos.value);
    for (const [id, info] of waiting) {
      const old = all.get(id);
      if (older(info, old)) continue;
      // What only a description of one run has is kept.
      all.set(id, old?.details !== undefined && info.details === undefined ? { ...info, details: old.details } : info);
    }
    waiting = new Map();
    if (all.size > mostInfos) {
      const ended = [...all.values()].filter(i => i.state === "closed").sort((a, b) => a.created.localeCompare(b.created));
      for (const i of ended.slice(0, all.size - mostInfos + mostInfos / 4)) all.delete(i.id);
    }
    infos.value = all;
  }, 16);
}

export function forget(id: string) {
  waiting.delete(id);
  if (!infos.value.has(id)) return;
  gone.add(id);
  const all = new Map(infos.value);
  all.delete(id);
  infos.value = all;
}

/** caughtUp is how many events came while the connection was lost, shortly after it is
 * there again; null otherwise. */
export const caughtUp = signal<number | null>(null);
const saidFor = 2_000; // milliseconds
let atLoss: ReadonlyMap<string, Info> | null = null;

effect(() => {
  if (link.value.lostAt) atLoss ??= infos.peek();
});

function resumed() {
  if (!atLoss || link.value.lostAt) return;
  const run = route.value.path.match(/^\/runs\/([^/]+)$/)?.[1];
  let n = 0;
  for (const [id, was] of atLoss) if (!run || id === run) n += Math.max(0, (infos.value.get(id)?.last ?? 0) - was.last);
  atLoss = null;
  caughtUp.value = n;
  setTimeout(() => (caughtUp.value = null), saidFor);
}

let stop: (() => void) | null = null;

function begin() {
  if (stop) return;
  stop = watch({
    run: info => note([info]),
    synced() {
      synced.value = true;
      setTimeout(resumed, 50); // when what came is noted
    },
    asks: list => (asks.value = list.asks),
    removed: forget,
  });
}

function enter(s: SessionInfo) {
  batch(() => {
    signedIn.value = { state: "in", session: s };
  });
  begin();
}

function leave(why: string) {
  stop?.();
  stop = null;
  batch(() => {
    signedIn.value = { state: "out", why };
    infos.value = new Map();
    known = null;
    asks.value = [];
    synced.value = false;
  });
}

onUnauthenticated(() => {
  if (signedIn.value.state === "in") leave("Your session has ended. Sign in again.");
});

/** signIn proves who this page is, with a one-time code or a token. */
export async function signIn(proof: { code: string } | { token: string }): Promise<void> {
  try {
    const s = await post<SessionInfo>("/v1/session", proof);
    if (s.key) key.set(s.key);
    enter(s);
  } catch (e) {
    const spent = e instanceof Failure && e.status === 401 && "code" in proof;
    // A code that is spent is no reason to end a session that is valid.
    if (spent && key.get() && (await resume())) return;
    signedIn.value = { state: "out", why: spent ? "This code was used before, or is too old." : words(e) };
  }
}

async function resume(): Promise<boolean> {
  try {
    enter(await get<SessionInfo>("/v1/session"));
    return true;
  } catch (e) {
    if (e instanceof Failure && e.lost) {
      signedIn.value = { state: "lost", why: e.message };
      setTimeout(() => void resume(), 2000);
      return true;
    }
    return false;
  }
}

export async function start(fragment: URLSearchParams) {
  const code = fragment.get("c");
  const token = fragment.get("s");
  if (code) return signIn({ code });
  if (token) return signIn({ token });
  if (!key.get() || !(await resume())) signedIn.value = { state: "out", why: key.get() ? "Your session has ended." : "" };
}

export async function signOut() {
  try {
    await request("DELETE", "/v1/session");
  } finally {
    key.clear();
    leave("You are signed out.");
  }
}

// How many answers are waited for is in the title, and a new one is told.
export const waitingCount = computed(() => asks.value.length);
export const announcement = signal("");
let known: Map<string, Ask> | null = null;

effect(() => {
  const list = asks.value;
  if (!synced.value) return;
  const seen = new Map(list.map(a => [a.run + "/" + a.seq, a]));
  const before = known;
  known = seen;
  if (!before) return;
  for (const [key, a] of before) if (!seen.has(key)) void settle(a, mine.delete(key));
  for (const a of list) {
    if (before.has(a.run + "/" + a.seq)) continue;
    announcement.value = `${a.name || a.engine} asks: ${a.ask.prompt || a.ask.name || a.ask.kind}`;
    tell(a);
  }
});

/** tell shows a notification, if the person wanted them and does not look. */
function tell(a: Ask) {
  if (localStorage.getItem("spool-notify") !== "true" || document.visibilityState === "visible") return;
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  const data = a.ask.data as { command?: string } | undefined;
  const n = new Notification(`${a.name || a.engine} waits for you`, { body: data?.command || a.ask.prompt || a.ask.name || a.ask.kind, tag: a.run + "/" + a.seq });
  n.onclick = () => {
    window.focus();
    history.pushState(null, "", "/inbox");
    dispatchEvent(new PopStateEvent("popstate"));
    n.close();
  };
}
