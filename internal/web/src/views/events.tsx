// The events of a run as they are in its log.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, query, runPath, type Event, type EventPage, type Info, type Truncation } from "../api.ts";
import { bytes, count, fine, missing } from "../format.ts";
import { route, setQuery } from "../route.ts";
import { visible } from "../sgr.ts";
import { Empty, Skeleton, Wrong } from "../ui.tsx";

const perPage = 100;
const kinds = ["started", "input", "output", "display", "result", "exception", "ask", "action", "message", "reasoning", "plan", "usage", "retry", "notice", "done", "truncated", "resized", "exited", "failed", "closed"];

export function Events({ info }: { info: Info }) {
  const q = route.value.query;
  const seq = Number(q.get("seq") ?? "") || 0;
  const kind = q.get("kind") ?? "";
  const after = Math.max(0, q.has("after") ? Number(q.get("after")) || 0 : seq ? seq - 10 : kind ? 0 : Math.max(0, info.last - perPage));
  const [events, setEvents] = useState<Event[] | null>(null);
  const [next, setNext] = useState(0);
  const [error, setError] = useState<unknown>(null);
  const turn = useRef(0);
  const load = async () => {
    const mine = ++turn.current;
    const all: Event[] = [];
    try {
      let cursor = after;
      // A page may have no event of the kind: look further.
      for (let i = 0; i < 20 && all.length < perPage; i++) {
        const page = await get<EventPage>(runPath(info.id) + "/events" + query({ after: cursor || undefined, max_bytes: 256 << 10, kind: kind ? [kind] : [] }));
        if (mine !== turn.current) return;
        all.push(...page.events);
        if (page.next === cursor || page.next >= page.info.last) {
          cursor = page.next;
          break;
        }
        cursor = page.next;
      }
      const shown = all.slice(0, perPage);
      setEvents(shown);
      setNext(all.length > perPage ? shown.at(-1)!.seq : cursor);
      setError(null);
    } catch (e) {
      if (mine !== turn.current) return;
      // Those before the ones that cannot be read are good.
      if (all.length) setEvents(all);
      setError(e);
    }
  };
  // The last page goes on while the run does.
  const atEnd = events !== null && next >= info.last - 1 && events.length < perPage;
  useEffect(() => void load(), [info.id, after, kind, atEnd || events === null ? info.last : 0]);

  const to = (cursor: number) => setQuery({ view: "events", after: String(Math.max(0, cursor)), seq: "" }, false);
  return (
    <>
      <div class="toolbar" role="toolbar" aria-label="Events">
        <button disabled={after === 0} onClick={() => to(0)}>First</button>
        <button disabled={after === 0} onClick={() => to(after - perPage)}>Before</button>
        <button disabled={next >= info.last} onClick={() => to(next)}>After</button>
        <button disabled={next >= info.last} onClick={() => to(info.last - perPage)}>Last</button>
        <select aria-label="Kind of event" style={{ width: "auto" }} value={kind} onChange={e => setQuery({ view: "events", kind: e.currentTarget.value, after: "0" })}>
          <option value="">All kinds</option>
          {kinds.map(k => <option key={k} value={k}>{k}</option>)}
        </select>
        <span class="grow" />
        <span class="hits">{count(info.last)} events</span>
      </div>
      <div class="pane padded table-box">
        {!events && error === null && <Skeleton label="Loading events" />}
        {events?.length === 0 && <Empty title="No events here" />}
        {!!events?.length && (
          <table class="events">
            <thead>
              <tr><th scope="col">Seq</th><th scope="col">Time</th><th scope="col">Kind</th><th scope="col">What</th></tr>
            </thead>
            <tbody>
              {events.map(e => (
                <tr key={e.seq} class={e.seq === seq ? "at" : ""}>
                  <td><a href={`/runs/${info.id}?view=events&seq=${e.seq}`}>{e.seq}</a></td>
                  <td title={e.time}>{fine(e.time)}</td>
                  <td><span class="kind">{e.kind}</span>{e.turn ? ` · ${e.turn}` : ""}</td>
                  <td><Payload event={e} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {error !== null && <Wrong error={error} again={() => void load()} />}
      </div>
    </>
  );
}

/** long is whether a text may have to be scrolled. */
const long = (text: string) => text.length > 300 || text.split("\n").length > 6;

function Payload({ event: e }: { event: Event }) {
  if (e.kind === "truncated") return <>{missing((e.data ?? {}) as Truncation)}</>;
  if (e.text !== undefined || e.base64 !== undefined) {
    const text = e.text ?? `${bytes(Math.floor((e.base64!.length * 3) / 4))} that are not UTF-8`;
    return (
      <pre tabIndex={long(text) ? 0 : undefined}>
        <span class="quiet">{e.stream} </span>
        {visible(text.slice(0, 2000).replaceAll("\x1b", "^["))}
        {text.length > 2000 && `… ${bytes(text.length)} in all`}
      </pre>
    );
  }
  if (e.data === undefined) return null;
  const text = JSON.stringify(e.data, null, 1);
  return <pre tabIndex={long(text) ? 0 : undefined}>{visible(text.length > 6000 ? text.slice(0, 6000) + "…" : text.length < 120 ? JSON.stringify(e.data) : text)}</pre>;
}
