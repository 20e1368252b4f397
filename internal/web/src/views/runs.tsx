import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import { get, post, query, request, runPath, words, type Info, type RunList, type Tail, type TailList } from "../api.ts";
import { age, bytes, count, date, directory, duration, label, plural, took } from "../format.ts";
import { useActs } from "../keys.ts";
import { go, route, setQuery } from "../route.ts";
import { status } from "../status.ts";
import { visible } from "../sgr.ts";
import { asks, forget, infos, may, note, now, synced } from "../store.ts";
import { confirm, Empty, Mark, Skeleton, toast, Wrong } from "../ui.tsx";

const perPage = 100;
const engines = ["process", "kernel", "sandbox", "agent"];

/** The filters, as they are in the address. */
interface Wanted {
  show: string; // live, waiting, failed or empty
  engine: string;
  label: string;
  text: string;
}

function wanted(): Wanted {
  const q = route.value.query;
  return { show: q.get("show") ?? "", engine: q.get("engine") ?? "", label: q.get("label") ?? "", text: q.get("q") ?? "" };
}

const failed = (i: Info) => ["failed", "unknown", "stopped"].includes(status(i).look);

function matches(i: Info, w: Wanted): boolean {
  if (w.show === "live" && i.state === "closed") return false;
  if (w.show === "waiting" && !i.asks?.count) return false;
  if (w.show === "failed" && !failed(i)) return false;
  if (w.engine && i.engine !== w.engine) return false;
  if (w.label) {
    const at = w.label.indexOf(":");
    const [k, v] = at < 0 ? [w.label, ""] : [w.label.slice(0, at), w.label.slice(at + 1)];
    if (i.labels?.[k] === undefined || (v && i.labels[k] !== v)) return false;
  }
  if (!w.text) return true;
  const all = [i.id, i.name, i.engine, i.node, i.cwd, i.title, ...(i.argv ?? []), ...Object.entries(i.labels ?? {}).flat()].join(" ").toLowerCase();
  return w.text.toLowerCase().split(/\s+/).every(t => all.includes(t));
}

/** news is what there is to say about a run in a line. */
function news(i: Info): string {
  const s = status(i);
  if (s.look === "waiting") {
    const a = asks.value.find(a => a.run === i.id);
    if (a) return "wants: " + ((a.ask.data as { command?: string } | undefined)?.command || a.ask.prompt || a.ask.name || a.ask.kind);
  }
  if (i.state === "closed") return s.text;
  const said = tails.value.get(i.id)?.text;
  if (i.engine === "process" && said) return said;
  if (i.title && i.name) return i.title;
  return s.word === "idle" ? "idle" : said ?? "";
}

/** tails are the last lines of live runs that were in the list. */
const tails = signal<ReadonlyMap<string, Tail>>(new Map());
const tailEvery = 1000; // milliseconds

/** useTails asks for the last lines of live runs that have written more. */
function useTails(runs: Info[]) {
  const shown = useRef(runs);
  shown.current = runs;
  useEffect(() => {
    const asked = new Map<string, number>(); // the event up to which the last line is known
    let busy = false;
    const look = async () => {
      const stale = shown.current.filter(i => i.state !== "closed" && asked.get(i.id) !== i.last && i.last > 0).slice(0, perPage);
      if (busy || stale.length === 0 || document.visibilityState !== "visible") return;
      busy = true;
      try {
        for (const i of stale) asked.set(i.id, i.last);
        const list = await get<TailList>("/v1/tails" + query({ run: stale.map(i => i.id) }));
        const next = new Map([...tails.value].filter(([id]) => infos.value.get(id)?.state !== "closed"));
        for (const t of list.tails) next.set(t.run, t);
        tails.value = next;
      } catch {
        for (const i of stale) asked.delete(i.id); // later
      }
      busy = false;
    };
    const timer = setInterval(() => void look(), tailEvery);
    void look();
    return () => clearInterval(timer);
  }, [runs.length > 0]);
}

/** Chosen acts on the runs that are marked. */
function Chosen({ runs, clear }: { runs: Info[]; clear: () => void }) {
  const live = runs.filter(i => i.state !== "closed");
  const ended = runs.filter(i => i.state === "closed");
  const all = async (list: Info[], act: (i: Info) => Promise<unknown>, said: string) => {
    const failures: string[] = [];
    for (const i of list) await act(i).catch(e => failures.push(`${label(i).slice(0, 40)}: ${words(e)}`));
    clear();
    toast(failures.length ? `${plural(failures.length, "run")} of ${list.length}: ${failures[0]}` : said, failures.length > 0);
  };
  const names = (list: Info[]) => (
    <ul>
      {list.slice(0, 8).map(i => <li key={i.id}>{label(i).slice(0, 100)}</li>)}
      {list.length > 8 && <li>and {count(list.length - 8)} more</li>}
    </ul>
  );
  const control = (op: string, word: string) => confirm(`${word} ${plural(live.length, "run")}?`, names(live), word, () => void all(live, i => post(runPath(i.id) + "/control", { op }), `${plural(live.length, "run")}: ${word.toLowerCase()}`));
  return (
    <div class="chosen" role="group" aria-label="Marked runs">
      <span role="status">{plural(runs.length, "run")} marked</span>
      {live.length > 0 && may("runs:control") && (
        <>
          <button onClick={() => void all(live, i => post(runPath(i.id) + "/control", { op: "interrupt" }), "Interrupted")}>Interrupt</button>
          <button onClick={() => control("stop", "Stop")}>Stop</button>
          <button class="danger" onClick={() => control("kill", "Kill")}>Kill</button>
        </>
      )}
      {ended.length > 0 && may("runs:delete") && (
        <button
          class="danger"
          onClick={() =>
            confirm(`Delete ${plural(ended.length, "run")}?`, <>{names(ended)}<p>Their logs of {bytes(ended.reduce((n, i) => n + i.bytes, 0))} are deleted. This cannot be undone.</p></>, "Delete", () =>
              void all(ended, i => request("DELETE", runPath(i.id)).then(() => forget(i.id)), "Deleted"),
            )
          }
        >
          Delete
        </button>
      )}
      <button class="plain" onClick={clear}>Mark none</button>
    </div>
  );
}

export function Runs() {
  const w = wanted();
  const [listed, setListed] = useState<{ filter: string; oldest: string; next: string } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [more, setMore] = useState(false);
  const [pages, setPages] = useState(1);
  const [at, setAt] = useState(""); // the run on which keys act
  const field = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const turn = useRef(0);

  const server = { live: w.show === "live", waiting: w.show === "waiting", engine: w.engine, label: w.label ? [w.label] : [] };
  const filter = JSON.stringify([w.show, w.engine, w.label]);
  // From the moment the filter changes, the list is that of the new one, or none yet.
  const loaded = listed?.filter === filter ? listed : null;
  const load = async (cursor: string) => {
    const mine = ++turn.current;
    try {
      const page = await get<RunList>("/v1/runs" + query({ ...server, limit: perPage, cursor }));
      if (mine !== turn.current) return;
      note(page.runs);
      const oldest = page.runs.at(-1)?.created ?? "";
      setListed({ filter, oldest: page.next ? oldest : "", next: page.next ?? "" });
      setError(null);
    } catch (e) {
      if (mine === turn.current) setError(e);
    }
    setMore(false);
  };
  useEffect(() => {
    setListed(null);
    setAt("");
    setPages(1);
    void load("");
  }, [filter]);

  const all = infos.value;
  const matching = useMemo(() => {
    if (!loaded) return [];
    return [...all.values()]
      .filter(i => matches(i, w) && (!loaded.oldest || i.created >= loaded.oldest || i.state !== "closed"))
      .sort((a, b) => (b.asks?.count ? 1 : 0) - (a.asks?.count ? 1 : 0) || b.created.localeCompare(a.created));
  }, [all, loaded, filter, w.text, asks.value]);
  const runs = matching.slice(0, pages * perPage);
  const row = runs.findIndex(i => i.id === at);

  const live = [...all.values()].filter(i => i.state !== "closed").length;
  const waiting = new Set(asks.value.map(a => a.run)).size;

  const move = (by: number) => {
    const to = Math.max(0, Math.min(runs.length - 1, row + by));
    setAt(runs[to]?.id ?? "");
    list.current?.querySelectorAll<HTMLElement>(".run-row")[to]?.focus();
  };
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const mark = (run = runs[Math.max(0, row)]) => {
    if (!run) return;
    const next = new Set(chosen);
    if (!next.delete(run.id)) next.add(run.id);
    setChosen(next);
  };
  useTails(runs);
  const open = () => {
    const run = runs[Math.max(0, row)];
    if (run) go("/runs/" + run.id);
  };
  useActs(
    [
      { keys: "j", text: "Next run", run: () => move(1) },
      { keys: "k", text: "Previous run", run: () => move(-1) },
      { keys: "ArrowDown", text: "Next run", run: () => move(1) },
      { keys: "ArrowUp", text: "Previous run", run: () => move(-1) },
      { keys: "Enter", text: "Open the run", run: open },
      { keys: "x", text: "Mark the run", run: () => mark() },
      { keys: "/", text: "Filter the runs", run: () => field.current?.focus() },
    ],
    at,
    chosen,
    runs.map(r => r.id).join(),
  );

  const chip = (name: string, value: string, text: string, on: boolean) => (
    <button class="chip" aria-pressed={on} onClick={() => setQuery({ [name]: on ? "" : value })}>
      {text}
    </button>
  );
  const filtered = !!(w.show || w.engine || w.label || w.text);
  return (
    <div class="runs">
      <div class="title">
        <h1>Runs</h1>
        <p class="quiet" role="status">
          {synced.value && (
            <>
              <span class="mark live" aria-hidden="true">●</span> {count(live)} live
              {waiting > 0 && (
                <>
                  {" "}
                  <span class="mark waiting" aria-hidden="true">⚑</span> {count(waiting)} waiting
                </>
              )}
            </>
          )}
        </p>
        <span class="grow" />
        {may("runs:start") && (
          <a class="button primary" href="/new">
            New run
          </a>
        )}
      </div>
      <div class="filters" role="group" aria-label="Filters">
        {chip("show", "live", "Live", w.show === "live")}
        {chip("show", "waiting", "Waiting", w.show === "waiting")}
        {chip("show", "failed", "Failed", w.show === "failed")}
        <span class="divider" />
        {engines.map(e => chip("engine", e, e, w.engine === e))}
        {w.label && chip("label", "", w.label + " ×", true)}
        <span class="grow" />
        <input
          ref={field}
          type="search"
          aria-label="Filter by name, command, directory or label"
          placeholder="Filter ( / )"
          value={w.text}
          onInput={e => setQuery({ q: e.currentTarget.value })}
          onKeyDown={e => {
            if (e.key === "Escape") {
              setQuery({ q: "" });
              e.currentTarget.blur();
            }
            if (e.key === "Enter" || e.key === "ArrowDown") move(row < 0 ? 1 : 0);
          }}
        />
      </div>
      {error !== null && <Wrong error={error} again={() => void load("")} />}
      {!loaded && error === null && <Skeleton rows={8} label="Loading runs" />}
      {loaded && runs.length === 0 && !loaded.next && (
        <Empty title={filtered ? "No run is like that" : "No runs yet"}>
          {filtered ? (
            <button onClick={() => setQuery({ show: "", engine: "", label: "", q: "" })}>Show all runs</button>
          ) : (
            <p>
              <code>spool run -- make test</code> starts one, or <a href="/new">start it here</a>.
            </p>
          )}
        </Empty>
      )}
      {chosen.size > 0 && <Chosen runs={matching.filter(i => chosen.has(i.id))} clear={() => setChosen(new Set())} />}
      {runs.length > 0 && (
        <div class="run-list" ref={list} role="list" aria-label="Runs">
          <div class="run-head" aria-hidden="true">
            <span />
            <span>Run</span>
            <span>Engine</span>
            <span>Directory</span>
            <span>Started</span>
            <span>Took</span>
            <span class="right">Output</span>
          </div>
          {runs.map(i => (
            <RunRow key={i.id} info={i} focused={i.id === at} chosen={chosen.has(i.id)} focus={() => setAt(i.id)} mark={() => mark(i)} />
          ))}
        </div>
      )}
      {loaded && (loaded.next || matching.length > runs.length) && (
        <p class="more">
          <button
            disabled={more}
            onClick={() => {
              setPages(pages + 1);
              if (!loaded.next || matching.length >= (pages + 1) * perPage) return;
              setMore(true);
              void load(loaded.next);
            }}
          >
            {more ? "Loading…" : "Show older runs"}
          </button>
        </p>
      )}
    </div>
  );
}

function RunRow({ info, focused, chosen, focus, mark }: { info: Info; focused: boolean; chosen: boolean; focus: () => void; mark: () => void }) {
  const t = now.value;
  const text = news(info);
  const started = t - Date.parse(info.created);
  return (
    <div role="listitem">
      <a class={"run-row" + (focused ? " at" : "") + (chosen ? " chosen" : "")} href={"/runs/" + info.id} onFocus={focus}>
        <Mark info={info} />
        <span class="run-name">
          <strong>{chosen && <span class="mark">✓ <span class="sr">marked </span></span>}{label(info).slice(0, 300)}</strong>
          <span class={"news " + status(info).look}>{visible(text.slice(0, 300)) || "\u00a0"}</span>
        </span>
        <span class="engine">{info.engine}</span>
        <span class="dir" title={info.node ? `${info.cwd} on ${info.node}` : info.cwd}>
          {info.node && `${info.node}: `}
          {directory(info.cwd)}
        </span>
        <time dateTime={info.created} title={date(info.created)}>
          {started < 3000 ? "now" : age(started) + " ago"}
        </time>
        <span class="took">{took(info, t) < 60_000 && !info.ended ? age(took(info, t)) : duration(took(info, t))}</span>
        <span class="size right">{bytes(info.bytes)}</span>
      </a>
      <button class="pick" tabIndex={-1} aria-pressed={chosen} aria-label={"Mark " + label(info).slice(0, 80)} title="Mark this run ( x )" onClick={mark} />
    </div>
  );
}
