// What the page knows: who is signed in, the runs that it has seen, the open asks.
import { batch, computed, effect, signal } from "@preact/signals";
import { get, key, onUnauthenticated, post, request, words, Failure, type Ask, type AskList, type Info, type SessionInfo } from "./api.ts";
import { link, watch } from "./link.ts";

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

/** now is the time, to the second. */
export const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 1000);

const mostInfos = 8000; // that a page remembers; those that ended long ago go first

// Changes come in bursts; the page is drawn once for each.
let waiting = new Map<string, Info>();
let scheduled = false;

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
  const all = new Map(infos.value);
  all.delete(id);
  infos.value = all;
}

/** askVersion is what the server called the asks that are shown. */
function setAsks(list: AskList) {
  asks.value = list.asks;
}

let asking = false;
let askAgain = false;
/** loadAsks asks for the open asks, once at a time. */
export async function loadAsks() {
  if (asking) {
    askAgain = true;
    return;
  }
  asking = true;
  try {
    do {
      askAgain = false;
      setAsks(await get<AskList>("/v1/asks"));
    } while (askAgain);
  } catch {
    // The next change asks again.
  } finally {
    asking = false;
  }
}

let stop: (() => void) | null = null;
let askState = new Map<string, string>();

function begin() {
  if (stop) return;
  askState = new Map();
  stop = watch({
    run(info) {
      note([info]);
      const state = info.asks ? info.asks.open.join(" ") + "/" + info.asks.count : "";
      if ((askState.get(info.id) ?? "") !== state) {
        askState.set(info.id, state);
        if (link.value.rung === "websocket") void loadAsks();
      }
    },
    synced() {
      synced.value = true;
    },
    asks(list) {
      if (list) setAsks(list);
      else void loadAsks();
    },
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
let known: Set<string> | null = null;

effect(() => {
  const list = asks.value;
  if (!synced.value) return;
  const seen = new Set(list.map(a => a.run + "/" + a.seq));
  const before = known;
  known = seen;
  if (!before) return;
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
