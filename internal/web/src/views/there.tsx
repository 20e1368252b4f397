// What there is at a place of the line of time, before anybody goes there.
import { useEffect, useState } from "preact/hooks";
import { get, query, runPath, type LinePage } from "../api.ts";
import { clock, count } from "../format.ts";
import { parse } from "../sgr.ts";

/** lastLine is the last line of output that there was after an event. */
export async function lastLine(run: string, seq: number, signal?: AbortSignal): Promise<string> {
  const lines = (where: { seq: number } | { from: number }) => get<LinePage>(runPath(run) + "/lines" + query({ ...where, count: 1 }), { signal });
  const page = await lines({ seq: Math.max(1, seq) });
  let line = page.lines[0];
  // The next output there is may come later: the line before it is the last one.
  const before = line ? line.n - 1 : page.total;
  if ((!line || line.seq > seq) && before > 0) line = (await lines({ from: before })).lines[0];
  return line && line.seq <= seq ? parse(line.text).plain.slice(0, 300) : "";
}

export interface Place {
  seq: number;
  place: number; // from 0 to 1
  ms: number;
  mark: string; // what is marked there, in words
}

/** There says when a place is, and what was written last. */
export function There({ at, said, hear }: { at: Place; said: (seq: number, signal: AbortSignal) => Promise<string>; hear: (line: string) => void }) {
  const [line, setLine] = useState({ seq: -1, text: "" });
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(
      () =>
        said(at.seq, abort.signal).then(
          text => {
            setLine({ seq: at.seq, text });
            hear(text);
          },
          () => {},
        ),
      80,
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [at.seq]);
  return (
    <div class="there" aria-hidden="true" style={{ left: `${at.place * 100}%`, transform: `translateX(${-at.place * 100}%)` }}>
      <div>
        {clock(at.ms)} · event {count(at.seq)}
        {at.mark && <b> · {at.mark}</b>}
      </div>
      <div class="line">{line.seq === at.seq ? line.text || "Nothing was written yet" : "\u00a0"}</div>
    </div>
  );
}
