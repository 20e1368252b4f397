// The console: reads the public API, holds cursors and bounded windows, and nothing that
// is lost when it closes.
import { effect } from "@preact/signals";
import { render, type JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useActs } from "./keys.ts";
import { link, restarting } from "./link.ts";
import { age, clock, count, plural } from "./format.ts";
import { prefs } from "./prefs.ts";
import { go, route } from "./route.ts";
import { announcement, caughtUp, infos, may, now, session, signedIn, start, waitingCount } from "./store.ts";
import { Icon, Late, overlay, Toasts } from "./ui.tsx";
import { openHelp, openPalette } from "./views/help.tsx";
import { Inbox } from "./views/inbox.tsx";
import { Part } from "./views/part.tsx";
import { Run } from "./views/run.tsx";
import { Runs } from "./views/runs.tsx";
import { SignIn } from "./views/signin.tsx";

// The secret leaves the address before anything else happens.
const fragment = new URLSearchParams(location.hash.slice(1));
if (fragment.has("c") || fragment.has("s")) history.replaceState(null, "", location.pathname + location.search);

// A terminal makes style elements: they need the nonce of the page.
const nonce = document.querySelector<HTMLScriptElement>("script[nonce]")?.nonce ?? "";
const create = Document.prototype.createElement;
Document.prototype.createElement = function (this: Document, name: string, options?: ElementCreationOptions) {
  const e = create.call(this, name, options);
  if (nonce && name.toLowerCase() === "style") e.nonce = nonce;
  return e;
} as typeof create;

function Nav() {
  const at = route.value.path;
  const items: [string, string, string][] = [
    ["/", "runs", "Runs"],
    ["/inbox", "inbox", "Inbox"],
  ];
  if (may("runs:start")) items.push(["/new", "plus", "New"]);
  const waiting = waitingCount.value;
  return (
    <nav aria-label="Screens">
      {items.map(([to, icon, text]) => (
        <a key={to} href={to} aria-current={at === to || (to === "/" && at.startsWith("/runs/")) ? "page" : undefined}>
          <Icon name={icon} />
          <span>{text}</span>
          {to === "/inbox" && waiting > 0 && (
            <span class="badge" aria-label={plural(waiting, "open ask")}>
              {waiting}
            </span>
          )}
        </a>
      ))}
    </nav>
  );
}

/** Strip says that what is shown may be old. */
function Strip() {
  const l = link.value;
  const n = caughtUp.value;
  if (!l.lostAt && n !== null)
    return (
      <div class="strip ok" role="status">
        Connected again: {n ? `caught up ${plural(n, "event")}` : "nothing happened meanwhile"}
      </div>
    );
  if (!l.lostAt) return null;
  const ago = now.value - l.lostAt;
  const run = infos.value.get(route.value.path.match(/^\/runs\/([^/]+)$/)?.[1] ?? "");
  return (
    <Late>
      <div class="strip" role="status">
        {l.reason === restarting ? "The server says: restarting." : `Connection lost ${age(ago)} ago${l.reason && ": " + l.reason}.`} What you see is {run && `up to event ${count(run.last)}, `}as of {clock(l.lostAt)}; it goes on by itself.
      </div>
    </Late>
  );
}

function Footer() {
  const l = link.value;
  const words = { websocket: "WebSocket", stream: "Streams", poll: "Long polling" };
  return (
    <footer class="footer">
      <span class={"dot " + (l.open ? "ok" : l.lostAt ? "bad" : "")} aria-hidden="true" />
      <span role="status">
        {l.open ? "Connected" : l.lostAt ? "Reconnecting" : "Connecting"} · {words[l.rung]}
        {l.why && ` (${l.why})`}
      </span>
      <a href="/doctor">Doctor</a>
      <a href="/settings">Settings</a>
      <button class="plain" onClick={openHelp}>
        Keys <kbd>?</kbd>
      </button>
      <span class="grow" />
      <span class="who">
        {session.value?.subject} · Spool {session.value?.server.version}
      </span>
    </footer>
  );
}

/** other is a screen that is loaded when it is needed. */
function other(title: string, name: "Doctor" | "NewRun" | "Settings"): [string, JSX.Element] {
  return [title, <Part key={name} name={name} props={{}} label={title} screen />];
}

function screen(path: string): [string, JSX.Element] {
  const run = path.match(/^\/runs\/([^/]+)$/);
  if (run) return ["Run", <Run key={run[1]} id={decodeURIComponent(run[1]!)} />];
  switch (path) {
    case "/inbox":
      return ["Inbox", <Inbox />];
    case "/new":
      return other("New run", "NewRun");
    case "/doctor":
      return other("Doctor", "Doctor");
    case "/settings":
      return other("Settings", "Settings");
  }
  return ["Runs", <Runs />];
}

function Shell() {
  const path = route.value.path;
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  useEffect(() => {
    // Who moves by keyboard or hears the page begins at the new screen.
    if (!first.current) main.current?.focus({ preventScroll: true });
    first.current = false;
    scrollTo(0, 0);
  }, [path]);
  useActs([
    { keys: "g r", text: "Go to the runs", run: () => go("/") },
    { keys: "g i", text: "Go to the inbox", run: () => go("/inbox") },
    { keys: "g n", text: "Start a run", run: () => go("/new") },
    { keys: "g s", text: "Go to the settings", run: () => go("/settings") },
    { keys: "g d", text: "Go to the doctor", run: () => go("/doctor") },
    { keys: "?", text: "Show all keys", run: openHelp },
    { keys: "Ctrl+K", text: "Show all acts", run: openPalette },
    { keys: "", text: "Theme: light", run: () => (prefs.theme.value = "light") },
    { keys: "", text: "Theme: dark", run: () => (prefs.theme.value = "dark") },
    { keys: "", text: "Theme: as the system", run: () => (prefs.theme.value = "system") },
  ]);
  const stale = link.value.lostAt > 0 && now.value - link.value.lostAt > 60_000;
  const [title, view] = screen(path);
  useEffect(() => {
    if (title !== "Run") document.title = (waitingCount.value ? `(${waitingCount.value}) ` : "") + title + " · Spool";
  }, [title, waitingCount.value]);
  return (
    <>
      <a class="skip" href="#main" onClick={e => { e.preventDefault(); main.current?.focus(); }}>
        Skip to the content
      </a>
      <header class="top">
        <a class="logo" href="/" aria-label="Spool, all runs">
          <svg viewBox="0 0 32 32" aria-hidden="true">
            <path d="M7 7h18M7 25h18" />
            <path d="M11 12h10M11 16h10M11 20h10" />
          </svg>
          <span>Spool</span>
        </a>
        <Nav />
        <Strip />
        <span class="grow" />
        <button class="palette-button" onClick={openPalette}>
          <Icon name="search" />
          <span>Go to…</span>
          <kbd aria-hidden="true">Ctrl K</kbd>
        </button>
      </header>
      <main id="main" ref={main} tabIndex={-1} class={(title === "Run" ? "wide" : "") + (stale ? " stale" : "")}>
        {view}
      </main>
      <Footer />
      <div class="sr" role="alert">
        {announcement.value}
      </div>
    </>
  );
}

function App() {
  const s = signedIn.value;
  return (
    <>
      {s.state === "in" && <Shell />}
      {s.state === "out" && <SignIn why={s.why} />}
      {s.state === "checking" && (
        <Late>
          <main class="door">
            <p role="status">Signing in…</p>
          </main>
        </Late>
      )}
      {s.state === "lost" && (
        <main class="door">
          <h1>Spool</h1>
          <p role="status">{s.why} The page tries again by itself.</p>
        </main>
      )}
      {overlay.value?.()}
      <Toasts />
    </>
  );
}

// A dot on the icon says that somebody waits.
effect(() => {
  const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (!icon) return;
  icon.dataset["plain"] ??= icon.href;
  const dot = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#3b5bdb"/><path d="M8 8h16M8 24h16" stroke="#fff" stroke-width="3" stroke-linecap="round"/><circle cx="24" cy="8" r="8" fill="#f08c00"/></svg>';
  icon.href = waitingCount.value ? "data:image/svg+xml," + encodeURIComponent(dot) : icon.dataset["plain"];
});

render(<App />, document.getElementById("app")!);
void start(fragment);
