// The log of a run as lines.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, query, runPath, type Info, type LinePage } from "../api.ts";
import { count, plural } from "../format.ts";
import { useActs } from "../keys.ts";
import { loadMore } from "../lazy.ts";
import { Found, OneStream, Whole, type Lines } from "../lines.ts";
import { link } from "../link.ts";
import { prefs, recall, remember } from "../prefs.ts";
import { route, setQuery } from "../route.ts";
import { parse } from "../sgr.ts";
import { attempt, copy, Dialog, Empty, Icon, overlay, Skeleton, toast, Wrong } from "../ui.tsx";
import { Part } from "./part.tsx";
import { jsonOf, Rows } from "./rows.tsx";
import { LookBack, type Player } from "./lookback.tsx";

const fastBytes = 2_000_000; // a second

function lineRange(): [number, number] | null {
  const m = (route.value.query.get("line") ?? "").match(/^(\d+)(?:-(\d+))?$/);
  if (!m) return null;
  const a = Number(m[1]);
  const b = m[2] ? Number(m[2]) : a;
  return a > 0 ? [Math.min(a, b), Math.max(a, b)] : null;
}

export function Log({ info }: { info: Info }) {
  const whole = useMemo(() => new Whole(info.id), [info.id]);
  const [only, setOnly] = useState<"" | "stderr" | "found">("");
  const errors = useMemo(() => (only === "stderr" ? new OneStream(info.id, "stderr") : null), [only, info.id]);
  const [found, setFound] = useState<Found | null>(null);
  const [at, setAt] = useState({ end: false, first: 0, last: 0 });
  const [hit, setHit] = useState(-1);
  const [finding, setFinding] = useState(false);
  const [spoken, setSpoken] = useState("");
  const [moment, setMoment] = useState<number | null>(null); // on the line of time
  const looking = useRef(false); // at a moment on it
  const list = useRef<Rows>(null);
  const field = useRef<HTMLInputElement>(null);
  const visible = useRef(60);
  const live = info.state !== "closed";
  const selected = lineRange();
  const started = useRef(selected);
  const failed = !!info.outcome && (info.outcome.kind !== "exited" || info.outcome.code !== 0);
  const start = useRef<number | "end">(selected ? Math.max(0, selected[0] - 8) : live || failed ? "end" : 0).current;

  useEffect(() => {
    if (started.current || start === 0) whole.need(typeof start === "number" ? start : 0, (typeof start === "number" ? start : 0) + 1);
    else void whole.tail(400);
    return () => whole.stop();
  }, [whole]);
  useEffect(() => void whole.measure(), [whole, live]); // at the end again: what is missing is known then
  useEffect(() => () => errors?.stop(), [errors]);
  useEffect(() => () => found?.stop(), [found]);

  // Output that nobody can read is shown four times a second.
  const [fast, setFast] = useState(false);
  const sample = useRef({ at: performance.now(), bytes: info.bytes });
  useEffect(() => {
    const t = setInterval(() => {
      const { at, bytes } = sample.current;
      sample.current = { at: performance.now(), bytes: size.current };
      setFast(((size.current - bytes) / (sample.current.at - at)) * 1000 > fastBytes);
    }, 1000);
    return () => clearInterval(t);
  }, []);
  const size = useRef(0);
  size.current = info.bytes;
  const ended = useRef(false);
  ended.current = at.end;

  // While the end is in view it is loaded again; otherwise lines are only counted.
  const last = useRef(info.last);
  const pending = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => {
    if (last.current === info.last && info.state !== "closed") return;
    last.current = info.last;
    if (pending.current) return;
    pending.current = setTimeout(
      () => {
        pending.current = undefined;
        void whole.tail(ended.current ? visible.current + 20 : 1);
        errors?.refresh();
      },
      at.end ? (fast ? 250 : 30) : 500,
    );
  }, [info.last, info.state]);

  const lines: Lines = only === "stderr" ? errors! : only === "found" && found ? found : whole;
  const version = lines.changed.value + (found?.changed.value ?? 0) + whole.changed.value;
  const total = lines === whole ? whole.lines() : lines.count();
  const held = useRef(0);
  if (at.end || held.current === 0 || held.current > whole.lines()) held.current = whole.lines();
  const fresh = whole.lines() - held.current;

  const jump = (n: number) => {
    if (only === "") {
      list.current?.jump(whole.rowOf(n));
      return;
    }
    setOnly("");
    setTimeout(() => list.current?.jump(whole.rowOf(n)));
  };
  const show = (i: number) => {
    const h = found?.hits[i];
    if (!h?.n) return;
    setHit(i);
    if (only === "found") list.current?.jump(i);
    else jump(h.n);
  };
  const step = (by: number) => {
    if (!found?.hits.length) return;
    let to = hit + by;
    if (hit < 0) {
      // The first hit in view, or after it.
      to = found.hits.findIndex(h => h.n! > at.first);
      if (to < 0) to = 0;
    }
    show((to + found.hits.length) % found.hits.length);
  };
  // The first hit is shown when it comes.
  useEffect(() => {
    if (found && hit < 0 && found.hits.length && (!found.running || found.hits.some(h => h.n! > at.first))) step(1);
  }, [found, found?.changed.value]);

  const regex = useRef(false);
  const matchCase = useRef(false);
  const search = () => {
    const q = field.current?.value ?? "";
    found?.stop();
    setHit(-1);
    if (!q) {
      setFound(null);
      if (only === "found") setOnly("");
      return;
    }
    setFound(new Found(info.id, q, regex.current, !matchCase.current));
  };
  const typed = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const stopSearch = () => {
    setFinding(false);
    clearTimeout(typed.current);
    if (field.current) field.current.value = "";
    found?.stop();
    setFound(null);
    setHit(-1);
    if (only === "found") setOnly("");
    list.current?.focus();
  };
  // At once: what is typed next belongs to the field.
  const openSearch = () => {
    field.current?.focus();
    field.current?.select();
  };
  const follow = () => {
    looking.current = false;
    setMoment(null);
    list.current?.toEnd();
    void whole.tail(visible.current + 20);
  };
  const pick = (n: number, extend: boolean) => {
    const from = extend && selected ? selected[0] : n;
    setQuery({ view: "log", line: from === n ? String(n) : `${Math.min(from, n)}-${Math.max(from, n)}` });
  };
  const unfold = (n: number, value: unknown) => (overlay.value = () => <Part name="Tree" props={{ line: n, value }} label="JSON" />);
  const unfoldHere = () => {
    const rows = Array.from({ length: Math.max(1, at.last - at.first) }, (_, i) => lines.at(at.first + i));
    const line = rows.find(l => jsonOf(l) !== undefined && (!selected || l!.n === selected[0]));
    if (line) unfold(line.n, jsonOf(line));
    else toast(selected ? "This line has no JSON" : "No line in view has JSON");
  };
  const here = () => {
    const n = selected?.[0] ?? lines.at(at.first)?.n ?? 1;
    void copy(`${location.origin}/runs/${info.id}?view=log&line=${selected && selected[1] > selected[0] ? selected.join("-") : n}`, "Link copied");
  };
  // Output is never read aloud by itself.
  const readLast = () =>
    attempt(async () => {
      const page = await get<LinePage>(runPath(info.id) + "/lines" + query({ from: -1, count: 1 }));
      const line = page.lines[0];
      setSpoken(line ? `Line ${line.n}: ${parse(line.text).plain.slice(0, 500)}` : "There is no output.");
    });
  // On the line of time: the line of a moment.
  const shownAt = useRef(0);
  const player: Player = {
    show: async seq => {
      const row = await whole.find({ seq: Math.max(1, seq) });
      if (only === "" && looking.current) list.current?.jump(row); // it may be live again
    },
    write: e => {
      if (Date.now() - shownAt.current < 250) return;
      shownAt.current = Date.now();
      void player.show(e.seq).catch(() => {});
    },
  };
  const times = ["clock", "since", "delta", "none"];
  const nextTimes = () => (prefs.times.value = times[(times.indexOf(prefs.times.value) + 1) % times.length]!);

  useActs(
    [
      { keys: "f", text: "Follow the end of the log", run: follow },
      { keys: "End", text: "Go to the end of the log", run: follow },
      { keys: "Shift+G", text: "Go to the last line", run: follow },
      { keys: "g g", text: "Go to the first line", run: () => list.current?.toStart() },
      { keys: "/", text: "Search the log", run: openSearch },
      { keys: "n", text: "Next hit", run: () => step(1) },
      { keys: "Shift+N", text: "Previous hit", run: () => step(-1) },
      { keys: ":", text: "Jump to a line, an event or a time", run: () => (overlay.value = () => <Jump info={info} whole={whole} jump={jump} />) },
      { keys: "y", text: "Copy a link to here", run: here },
      { keys: "o", text: "Unfold the JSON of the line", run: unfoldHere },
      { keys: "t", text: "Change the times of lines", run: nextTimes },
      { keys: "w", text: "Wrap long lines", run: () => (prefs.wrap.value = !prefs.wrap.value) },
      { keys: "e", text: "Show only standard error", run: () => setOnly(only === "stderr" ? "" : "stderr") },
    ],
    info.id, only, found, hit, at.first, selected?.[0], selected?.[1],
  );

  const expression = useMemo(() => found?.expression() ?? null, [found]);
  const marks = useMemo(() => {
    if (!found || only !== "" || !whole.count()) return [];
    const at = new Set(found.hits.map(h => Math.round((500 * whole.rowOf(h.n!)) / Math.max(1, whole.count() - 1)) / 500));
    return [...at];
  }, [found, found?.hits.length, whole.count(), only]);

  const reading = lines.count() === 0 && !lines.exact() && !lines.error;
  const nothing = lines.count() === 0 && lines.exact();
  return (
    <>
      <div class="toolbar" role="toolbar" aria-label="Log">
        <form
          class="find"
          role="search"
          onSubmit={e => {
            e.preventDefault();
            if (found && found.pattern === field.current?.value) step(1);
            else search();
          }}
        >
          <input
            ref={field}
            type="search"
            aria-label="Search the log"
            placeholder="Search ( / )"
            onFocus={() => setFinding(true)}
            onBlur={e => !e.currentTarget.value && !e.currentTarget.form?.contains(e.relatedTarget as Node | null) && setFinding(false)}
            onInput={() => {
              clearTimeout(typed.current);
              typed.current = setTimeout(search, 250);
            }}
            onKeyDown={e => e.key === "Escape" && stopSearch()}
          />
          {finding && (
            <>
              <button type="button" aria-pressed={regex.current} title="Regular expression" aria-label=".* regular expression" onClick={() => { regex.current = !regex.current; search(); }}>
                .*
              </button>
              <button type="button" aria-pressed={matchCase.current} title="Match case" aria-label="Aa match case" onClick={() => { matchCase.current = !matchCase.current; search(); }}>
                Aa
              </button>
              <button type="button" class="plain" aria-label="Previous hit" onClick={() => step(-1)}>
                <Icon name="up" />
              </button>
              <button type="button" class="plain" aria-label="Next hit" onClick={() => step(1)}>
                <Icon name="down" />
              </button>
              <button type="button" class="plain" aria-label="End the search" onClick={stopSearch}>
                <Icon name="close" />
              </button>
            </>
          )}
        </form>
        {found && (
          <span class="hits" role="status">
            {hitText(found, hit, info.bytes)}
          </span>
        )}
        {found && found.hits.length > 0 && (
          <button aria-pressed={only === "found"} onClick={() => setOnly(only === "found" ? "" : "found")}>
            Only hits
          </button>
        )}
        <span class="grow" />
        <span class="hits counted" role="status">
          {whole.exact() ? plural(total, "line") : total ? `≥ ${plural(total, "line")}, counting…` : "counting…"}
        </span>
        {!info.tty && (
          <button aria-pressed={only === "stderr"} onClick={() => setOnly(only === "stderr" ? "" : "stderr")}>
            stderr
          </button>
        )}
        <button class="sr-button" onClick={() => void readLast()}>
          Read the last line
        </button>
        <span class="sr" role="status">{spoken}</span>
        <button aria-pressed={prefs.wrap.value} onClick={() => (prefs.wrap.value = !prefs.wrap.value)}>
          Wrap
        </button>
        <button onClick={nextTimes} title="What times are shown: clock, since the start, since the line before, none">
          Times: {prefs.times.value}
        </button>
      </div>
      {lines.error !== null && lines.count() === 0 ? (
        <div class="log">
          <div class="pane padded">
            <Wrong error={lines.error} again={() => { lines.error = null; void whole.tail(400); void whole.measure(); }} />
          </div>
        </div>
      ) : (
        <div class={"log" + (prefs.wrap.value ? " wrap" : "")}>
          {reading && (
            <div style={{ padding: "1rem" }}>
              <Skeleton rows={12} label="Loading the log" />
            </div>
          )}
          {nothing && (
            <Empty title={only === "stderr" ? "Nothing on standard error" : live ? "No output yet" : "It wrote nothing"}>
              {live && only === "" && <p>What it writes appears here by itself.</p>}
            </Empty>
          )}
          {!reading && !nothing && (
            <Rows
              key={only}
              handle={list}
              lines={lines}
              version={version}
              rowHeight={prefs.fontSize.value * 1.5}
              wrap={prefs.wrap.value}
              times={prefs.times.value}
              created={info.created}
              label={`Log of ${plural(total, "line")}`}
              selected={selected}
              found={expression}
              foundAt={found?.hits[hit]?.n ?? 0}
              marks={marks}
              start={only === "" ? start : 0}
              moved={(end, first, last) => {
                visible.current = Math.max(30, last - first);
                if (end !== at.end || first !== at.first) setAt({ end, first, last });
              }}
              pick={pick}
              unfold={unfold}
              visit={file => void attempt(async () => (await loadMore()).openFile(prefs.editor.value, file, info.cwd ?? "/"))}
            />
          )}
          {live && only === "" && !reading && !nothing && (
            <button class={"follow" + (at.end ? " on" : "") + (link.value.lostAt ? " lost" : "")} onClick={follow} title={at.end ? "The end is followed" : "Follow the end"}>
              {at.end ? (link.value.lostAt ? "○ no connection" : "● live") : <><Icon name="down" /> {fresh > 0 ? plural(fresh, "new line") : "Follow"}</>}
            </button>
          )}
          {fast && live && at.end && only === "" && (
            <span class="pill fast" role="status">fast output, shown 4 times a second</span>
          )}
          {selected && (
            <div class="linebar" role="group" aria-label="Selected lines">
              <span>{selected[0] === selected[1] ? `Line ${count(selected[0])}` : `Lines ${count(selected[0])}–${count(selected[1])}`}</span>
              <button onClick={() => void copyLines(info, selected)}>Copy text</button>
              <button onClick={here}>Copy link</button>
              <button class="plain" aria-label="Select nothing" onClick={() => setQuery({ line: "" })}>
                <Icon name="close" />
              </button>
            </div>
          )}
        </div>
      )}
      {only === "" && (
        <LookBack
          info={info}
          at={moment}
          move={seq => {
            if (seq === null) return follow();
            looking.current = true;
            setMoment(seq);
          }}
          player={player}
          what="The log"
        />
      )}
    </>
  );
}

function hitText(f: Found, at: number, size: number): string {
  if (f.error) return f.error instanceof Error ? f.error.message : "The search failed.";
  const n = f.hits.length;
  const part = f.running ? `${Math.min(99, Math.floor((100 * f.read) / Math.max(1, size)))} %` : "";
  if (n === 0) return f.running ? `Searching… ${part}` : "Nothing found";
  const all = n >= 1000 ? "the first 1,000" : (f.running ? "≥ " : "") + count(n);
  return `${at < 0 ? "" : count(at + 1) + " of "}${all}${f.running ? `, still searching ${part}` : ""}`;
}

/** copyLines copies lines, also those that were never loaded. */
async function copyLines(info: Info, [from, to]: [number, number]) {
  const most = 20_000;
  await attempt(async () => {
    const texts: string[] = [];
    for (let n = from; n <= Math.min(to, from + most - 1); ) {
      const page = await get<LinePage>(runPath(info.id) + "/lines" + query({ from: n, count: Math.min(2000, to - n + 1) }));
      if (page.lines.length === 0) break;
      for (const l of page.lines) texts.push(parse(l.text).plain);
      n = page.next;
    }
    await navigator.clipboard.writeText(texts.join("\n") + "\n");
    toast(`${plural(texts.length, "line")} copied` + (to - from + 1 > most ? `, of ${count(to - from + 1)}: save the output instead` : ""));
  });
}

function Jump({ info, whole, jump }: { info: Info; whole: Whole; jump: (n: number) => void }) {
  const [wrong, setWrong] = useState("");
  const close = () => (overlay.value = null);
  const submit = async (text: string) => {
    remember("jump", text);
    try {
      let m: RegExpMatchArray | null;
      if ((m = text.match(/^[\d,]+$/))) jump(Math.max(1, Number(text.replaceAll(",", ""))));
      else if ((m = text.match(/^#(\d+)$/))) jump((await whole.find({ seq: Number(m[1]) })) + 1);
      else if ((m = text.match(/^(\d?\d):(\d\d)(?::(\d\d))?$/))) {
        const t = new Date(info.created);
        const start = t.getTime();
        t.setHours(Number(m[1]), Number(m[2]), Number(m[3] ?? 0), 0);
        if (t.getTime() < start - 3_600_000) t.setDate(t.getDate() + 1);
        jump((await whole.find({ time: t.toISOString() })) + 1);
      } else return setWrong("Type a number of a line, # and the number of an event, or a time such as 17:04.");
      close();
    } catch (e) {
      setWrong(e instanceof Error ? e.message : String(e));
    }
  };
  return (
    <Dialog title="Jump to" close={close}>
      <form
        class="stack"
        onSubmit={e => {
          e.preventDefault();
          void submit((e.currentTarget.elements.namedItem("place") as HTMLInputElement).value.trim());
        }}
      >
        <label for="place">A line (1200), an event (#8112) or a time (17:04)</label>
        <input id="place" name="place" type="text" autoFocus autocomplete="off" defaultValue={recall("jump")} />
        {wrong && <p role="alert" class="quiet">{wrong}</p>}
        <footer>
          <button class="primary">Jump</button>
        </footer>
      </form>
    </Dialog>
  );
}
