// What cells show: output with its colours, and displays in their best form.
import { useEffect, useMemo, useState } from "preact/hooks";
import { post, runPath, words, type Info, type TicketInfo } from "../api.ts";
import { duration, missing } from "../format.ts";
import { parse, visible } from "../sgr.ts";
import type { Item } from "../turns.ts";
import { types as pictures } from "../images.ts";
import { usePicture } from "./pictures.tsx";
import { Said } from "./said.tsx";

export function OutputText({ item, info }: { item: Item; info: Info }) {
  const lines = useMemo(() => item.text.replace(/\n$/, "").split("\n").slice(-2000).map(parse), [item.text]);
  return (
    <>
      {item.cut && <p class="quiet">Earlier output is in the <a href={`/runs/${info.id}?view=log`}>log</a>.</p>}
      <pre class={item.stream === "stderr" ? "stderr" : ""} tabIndex={lines.length > 25 ? 0 : undefined} aria-label={item.stream === "stderr" ? "Standard error" : "Output"}>
        {lines.map((l, n) => (
          <span key={n}>
            {l.spans.map((s, i) =>
              s.href ? (
                <a key={i} href={s.href} target="_blank" rel="noopener noreferrer">{s.text}</a>
              ) : (
                <span key={i} class={s.cls} style={s.fg || s.bg ? { color: s.fg, background: s.bg } : undefined}>{s.text}</span>
              ),
            )}
            {"\n"}
          </span>
        ))}
      </pre>
    </>
  );
}

export function Display({ item, info }: { item: Item; info: Info }) {
  const d = item.data as Record<string, unknown>;
  const types = Object.keys(d).filter(k => k.includes("/"));
  const picture = pictures.find(p => types.includes(p));
  const plain = typeof d["text/plain"] === "string" ? d["text/plain"] : "";
  if (picture) return <Picture info={info} seq={item.seq} type={picture} alt={plain || "What the cell displays"} />;
  for (const type of ["text/html", "image/svg+xml", "application/pdf"])
    if (types.includes(type)) return <Frame info={info} seq={item.seq} type={type} />;
  if (typeof d["text/markdown"] === "string") return <Said text={d["text/markdown"]} />;
  const json = types.find(t => /\bjson$/.test(t));
  if (!plain && json) return <pre tabIndex={0} aria-label="JSON">{visible(JSON.stringify(d[json], null, 2).slice(0, 100_000))}</pre>;
  if (plain) return <pre tabIndex={plain.length > 3000 ? 0 : undefined} aria-label="Value">{visible(plain.slice(0, 200_000))}</pre>;
  return <p class="quiet">A display of type {types.join(", ")}. <button onClick={() => void save(info, item.seq, types[0]!)}>Save</button></p>;
}

const formPath = (info: Info, seq: number, type: string) => `${runPath(info.id)}/events/${seq}/forms/${type}`;

async function save(info: Info, seq: number, type: string) {
  const t = await post<TicketInfo>("/v1/tickets", { path: formPath(info, seq, type) });
  const a = document.createElement("a");
  a.href = t.url;
  a.download = "";
  a.click();
}

function Picture({ info, seq, type, alt }: { info: Info; seq: number; type: string; alt: string }) {
  const { url, error } = usePicture(formPath(info, seq, type), type);
  if (error) return <p class="aside bad">{error}</p>;
  return url ? <img src={url} alt={alt} /> : <div class="skeleton" style={{ height: "240px" }} />;
}

/** Frame shows a document in a frame without an origin, in which nothing runs unless the
 * person wants it. */
function Frame({ info, seq, type }: { info: Info; seq: number; type: string }) {
  const [url, setUrl] = useState("");
  const [scripts, setScripts] = useState(false);
  const [error, setError] = useState("");
  useEffect(() => {
    setUrl("");
    post<TicketInfo>("/v1/tickets", { path: formPath(info, seq, type) + (scripts ? "?scripts=1" : "") }).then(t => setUrl(t.url), e => setError(words(e)));
  }, [info.id, seq, type, scripts]);
  if (error) return <p class="aside bad">{error}</p>;
  return (
    <div class="stack" style={{ justifyItems: "start" }}>
      {!url && <div class="frame" />}
      {url && <iframe key={url} title={`What the cell displays (${type})`} src={url} sandbox={scripts ? "allow-scripts" : ""} referrerpolicy="no-referrer" loading="lazy" />}
      {type !== "application/pdf" && <button aria-pressed={scripts} onClick={() => setScripts(!scripts)}>{scripts ? "Stop scripts" : "Run scripts"}</button>}
    </div>
  );
}

export function Exception({ item }: { item: Item }) {
  const d = item.data as { name: string; message: string; traceback?: string; printed?: boolean };
  if (d.printed) return null;
  return (
    <details class="action" open={!d.traceback}>
      <summary>
        <span class="mark failed" aria-hidden="true">✕</span>
        <span class="what">{visible(`${d.name}: ${d.message}`)}</span>
        {d.traceback && <span class="quiet">traceback</span>}
      </summary>
      {d.traceback && <div class="body"><pre tabIndex={0} aria-label="Traceback">{visible(d.traceback)}</pre></div>}
    </details>
  );
}

export function Notice({ item }: { item: Item }) {
  const bad = item.data?.level === "error" || item.data?.level === "warning";
  return <p class={"aside" + (bad ? " bad" : "")}>{visible(item.text || item.data?.code || "")}</p>;
}

export function Gap({ item }: { item: Item }) {
  return <p class="aside">{missing(item.data ?? {})}</p>;
}

/** AnsweredAsk is an ask that is not open any more. */
export function AnsweredAsk({ item }: { item: Item }) {
  const a = item.answered;
  const what = item.data?.data?.command || item.data?.prompt || item.data?.name || item.data?.kind;
  const choice = a?.data === undefined ? "" : typeof a.data === "string" ? a.data : (a.data?.choice ?? JSON.stringify(a.data));
  return (
    <p class="aside">
      Asked: {visible(String(what).slice(0, 500))}
      {a?.by === "deadline" ? ` — nobody answered in ${duration(Date.parse(item.data?.deadline) - Date.parse(item.time))}: denied` : a ? ` — ${a.error || choice || "answered"}${a.by ? ` by ${a.by}` : ""}` : " — not answered"}
    </p>
  );
}
