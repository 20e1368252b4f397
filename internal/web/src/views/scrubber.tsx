// A bar under the views of a run: go to any moment of it, and let it play again.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, query, runPath, type EventPage, type LogIndex, type Mark } from "../api.ts";
import { clock, count } from "../format.ts";
import { useActs } from "../keys.ts";
import { apart, pointsOf, Timeline, type Point } from "../timeline.ts";
import { Icon } from "../ui.tsx";
import type { Looking } from "./lookback.tsx";
import { lastLine, There } from "./there.tsx";

const speeds = [0.5, 1, 2, 4, 8, Infinity];
const thumb = 8; // pixels from the middle of the thumb to its edge
const again = 5000; // milliseconds after which the line of a run that goes on is made anew

const markWords: Record<string, string> = { turn: "A turn began", ask: "It asked", exception: "An exception", failed: "It failed", resized: "Another size", end: "It ended", truncated: "Something is missing" };

/** Scrubber shows where in the log a view is. */
export function Scrubber({ info, at, move, player }: Looking) {
  const live = info.state !== "closed";
  const [points, setPoints] = useState<Point[] | null>(null);
  const [marks, setMarks] = useState<Mark[]>([]);
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  const [skip, setSkip] = useState(true);
  const rate = useRef({ speed, skip });
  rate.current = { speed, skip };
  const wanted = useRef<number | null>(null);
  const drawing = useRef<Promise<void> | null>(null);
  const open = at !== null;
  const [over, setOver] = useState<number | null>(null); // where the pointer is, from 0 to 1
  const [focused, setFocused] = useState(false);
  const [spoken, setSpoken] = useState({ seq: -1, text: "" });
  // What is so now, for what has waited meanwhile.
  const now = useRef({ at, playing });
  now.current = { at, playing };

  // The bar is made again when the log has grown.
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = () =>
      get<LogIndex>(runPath(info.id) + "/index" + query({ wait_ms: 20_000 }), { signal: abort.signal }).then(
        x => {
          setPoints(pointsOf(x));
          setMarks(x.marks);
          if (live || !x.complete) timer = setTimeout(load, again);
        },
        () => {},
      );
    void load();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [info.id, live]);
  const line = useMemo(() => new Timeline(points ?? [], skip), [points, skip]);
  const bars = useMemo(() => line.density(120), [line]);
  const ticks = useMemo(() => apart(line, marks, 160), [line, marks]);

  /** seek draws the newest wish, one at a time. */
  const seek = (seq: number) => {
    wanted.current = seq;
    move(seq);
    drawing.current ??= (async () => {
      while (wanted.current !== null) {
        const s: number = wanted.current;
        wanted.current = null;
        await player.show(s).catch(() => {});
        await new Promise(resolve => setTimeout(resolve, 80));
      }
      drawing.current = null;
    })();
  };

  useEffect(() => {
    if (!playing) return;
    const abort = new AbortController();
    void (async () => {
      let cursor = at ?? 0;
      let before = 0;
      await drawing.current;
      while (!abort.signal.aborted) {
        const page = await get<EventPage>(runPath(info.id) + "/events" + query({ after: cursor || undefined, max_bytes: 256 << 10 }), { signal: abort.signal });
        for (const e of page.events) {
          const ms = Date.parse(e.time);
          let wait = before ? ms - before : 0;
          if (rate.current.skip) wait = Math.min(wait, 500);
          before = ms;
          if (wait / rate.current.speed > 4) await new Promise(resolve => setTimeout(resolve, wait / rate.current.speed));
          if (abort.signal.aborted || !now.current.playing || now.current.at === null) return;
          player.write(e);
          move((cursor = e.seq));
        }
        if (page.next >= page.info.last) return setPlaying(false);
        cursor = page.next;
      }
    })().catch(() => setPlaying(false));
    return () => abort.abort();
  }, [playing]);

  useEffect(() => {
    if (at === null) setPlaying(false); // the view has gone to the end itself
  }, [at]);

  const seq = at ?? info.last;
  const place = points ? line.placeOf(seq) : 1;
  const there = over !== null ? line.seqAt(over) : seq;
  const near = ticks.find(t => Math.abs(t.place - (over ?? place)) < 0.006);
  const point = (e: PointerEvent) => {
    const box = (e.currentTarget as HTMLElement).getBoundingClientRect();
    setOver(Math.max(0, Math.min(1, (e.clientX - box.left - thumb) / Math.max(1, box.width - 2 * thumb))));
  };
  const play = () => {
    if (!playing && (at === null || at >= info.last)) seek(0);
    setPlaying(!playing);
  };
  const goLive = () => {
    setPlaying(false);
    wanted.current = null;
    move(null);
  };
  const step = (by: number) => {
    setPlaying(false);
    seek(Math.max(0, Math.min(info.last, seq + by)));
  };
  const toMark = (by: 1 | -1) => {
    const next = by > 0 ? marks.find(m => m.seq > seq) : marks.findLast(m => m.seq < seq);
    if (!next) return;
    setPlaying(false);
    seek(next.seq);
  };
  useActs(
    [
      { keys: "[", text: "Previous mark", run: () => toMark(-1) },
      { keys: "]", text: "Next mark", run: () => toMark(1) },
      { keys: "Space", text: "Play or pause", run: play },
      { keys: ",", text: "One event back", run: () => step(-1) },
      { keys: ".", text: "One event on", run: () => step(1) },
      ...(open ? [{ keys: "Shift+G", text: "Go to the end", run: goLive }] : []),
    ],
    playing, at, info.last, marks,
  );

  return (
    <div class="scrubber" role="group" aria-label="Timeline">
      <button onClick={play} disabled={!points} aria-label={playing ? "Pause" : "Play"}>
        {playing ? "❚❚" : <Icon name="play" />}
      </button>
      <div class="track" onPointerMove={point} onPointerLeave={() => setOver(null)} onPointerCancel={() => setOver(null)}>
        <div class="bars" aria-hidden="true">
          {bars.map((h, i) => (
            <i key={i} style={{ height: `${8 + h * 92}%` }} />
          ))}
        </div>
        <div class="ticks" aria-hidden="true">
          {ticks.map(({ mark, place }) => (
            <i key={mark.seq} class={mark.kind} style={{ left: `${place * 100}%` }} onClick={() => seek(mark.seq)} />
          ))}
        </div>
        <input
          type="range"
          min="0"
          max="1000"
          disabled={!points}
          value={Math.round(place * 1000)}
          style={{ "--at": `calc(${thumb}px + (100% - ${2 * thumb}px) * ${place})` }}
          aria-label="Moment"
          aria-valuetext={points ? `${clock(line.timeAt(seq))}, event ${seq} of ${info.last}${spoken.seq === seq && spoken.text ? ": " + spoken.text : ""}` : "loading"}
          onFocus={() => setFocused(true)}
          onBlur={() => setFocused(false)}
          onKeyDown={e => e.key === "Escape" && (setOver(null), setFocused(false))}
          onInput={e => {
            setPlaying(false);
            seek(line.seqAt(Number(e.currentTarget.value) / 1000));
          }}
        />
        {points && (over !== null || (focused && !playing)) && (
          <There
            at={{ seq: there, place: over ?? place, ms: line.timeAt(there), mark: near ? markWords[near.mark.kind] ?? near.mark.kind : "" }}
            said={player.said ?? ((seq, signal) => lastLine(info.id, seq, signal))}
            hear={text => setSpoken({ seq: there, text })}
          />
        )}
      </div>
      <button class="plain" disabled={marks.length === 0} aria-label="Previous mark" title="Previous mark ( [ )" onClick={() => toMark(-1)}>⇤</button>
      <button class="plain" disabled={marks.length === 0} aria-label="Next mark" title="Next mark ( ] )" onClick={() => toMark(1)}>⇥</button>
      <span class="moment">
        {points ? clock(line.timeAt(seq)) : "--:--:--"} · {count(seq)} of {count(info.last)}
      </span>
      <select aria-label="Speed" value={String(speed)} onChange={e => setSpeed(Number(e.currentTarget.value))}>
        {speeds.map(s => (
          <option key={s} value={String(s)}>
            {s === Infinity ? "max" : s + "×"}
          </option>
        ))}
      </select>
      <button aria-pressed={skip} onClick={() => setSkip(!skip)} title="Long silences are skipped">
        Skip idle
      </button>
      {open && <button onClick={goLive}>{live ? "Go live" : "To the end"}</button>}
    </div>
  );
}
