// A conversation with an agent: what was asked, said, thought and done.
import { useState } from "preact/hooks";
import { request, runPath, words, type Info } from "../api.ts";
import { clock, count, duration } from "../format.ts";
import { visible } from "../sgr.ts";
import { asks, may, now } from "../store.ts";
import type { Item, Turn } from "../turns.ts";
import { Empty, Skeleton, Wrong } from "../ui.tsx";
import { AskCard } from "./ask.tsx";
import { Composer } from "./composer.tsx";
import { AnsweredAsk, Gap, Notice, OutputText } from "./output.tsx";
import { PromptPictures } from "./pictures.tsx";
import { Diff, Said } from "./said.tsx";
import { useMoment } from "./moment.tsx";
import { useStick, useTurns } from "./useturns.ts";

export function Conversation({ info }: { info: Info }) {
  const view = useTurns(info);
  const { shown: list, bar, back } = useMoment(info, view.turns.list, "The conversation");
  useStick();
  const s = view.turns.started;
  const config = (info.details as { config?: { follow_up?: string } } | undefined)?.config;
  const busy = { steer: "Steer the turn", interrupt: "Interrupt and send", reject: "Send" }[config?.follow_up ?? ""] ?? "Queue";
  return (
    <div class="pane padded talk">
      <p class="quiet">{s ? [s.agent, s.model, s.mode, s.version].filter(Boolean).join(" · ") : "\u00a0"}</p>
      {view.from > 0 && <p class="more"><button onClick={view.earlier}>Show earlier turns</button></p>}
      {!view.caughtUp && <Skeleton label="Loading the conversation" />}
      {view.caughtUp && list.length === 0 && <Empty title="Nothing was said yet" />}
      <div class="turns">
        {list.map(t => <TurnView key={t.seq || "between-" + t.items[0]?.seq} turn={t} info={info} />)}
      </div>
      {view.problem && <Wrong error={new Error(view.problem)} />}
      <div class="dock">
        {bar}
        {info.state !== "closed" && !back && may("runs:input") && (
          <Composer info={info} kind="prompt" label="Prompt" button={info.turn ? busy : "Send"} keys="enter" history={list.filter(t => t.kind === "prompt" && t.input).map(t => t.input)} images={!s || !!s.capabilities?.includes("images")} />
        )}
      </div>
    </div>
  );
}

function TurnView({ turn, info }: { turn: Turn; info: Info }) {
  const d = turn.done;
  if (turn.kind === "" && turn.items.length === 0) return null;
  return (
    <section class="turn" id={"turn-" + turn.seq} aria-label={turn.seq ? `Turn ${turn.seq}` : `Between turns, event ${turn.items[0]!.seq}`}>
      {turn.kind && (
        <>
          <header><span>You</span><time dateTime={turn.time}>{clock(turn.time)}</time></header>
          <PromptPictures info={info} images={turn.images} />
          {(turn.secret || turn.input || !turn.images.length) && <div class="prompt">{turn.secret ? "(secret)" : visible(turn.input)}</div>}
        </>
      )}
      {turn.items.map(i => <Piece key={i.seq} item={i} info={info} ended={!!d || info.state === "closed"} />)}
      {d && d.outcome !== "ok" && <p class="aside bad">{d.outcome}{d.error ? ": " + visible(d.error) : ""}</p>}
      {turn.usage && <UsageView usage={turn.usage} ms={d?.duration_ms} />}
      {!d && turn.kind && info.state !== "closed" && (
        <p class="quiet" role="status">{info.turn === turn.seq ? `Working for ${duration(Math.floor((now.value - Date.parse(turn.time)) / 1000) * 1000)}` : "Waiting for its turn"}</p>
      )}
    </section>
  );
}

function UsageView({ usage, ms }: { usage: any; ms: number | undefined }) {
  const s = usage.turn ?? usage.run ?? usage.session;
  const part = usage.context_size ? Math.min(1, usage.context_used / usage.context_size) : 0;
  return (
    <div class="usage">
      {ms !== undefined && <span>{duration(ms)}</span>}
      {s && <span>{count(s.input)} tokens in, {count(s.output)} out</span>}
      {s?.cost_usd > 0 && <span>${s.cost_usd.toFixed(4)}</span>}
      {part > 0 && (
        <>
          <span class="meter" role="img" aria-label={`${Math.round(part * 100)} % of the context used`}><i style={{ width: `${part * 100}%` }} /></span>
          <span>{Math.round(part * 100)} % of the context</span>
        </>
      )}
    </div>
  );
}

const icons: Record<string, string> = { command: "$", file_change: "±", tool: "⚙", mcp: "⚙", web_search: "⌕", fetch: "↓", read: "≡", search: "⌕", subagent: "⑂", skill: "★", note: "✎" };

function ActionView({ item, info, ended }: { item: Item; info: Info; ended: boolean }) {
  const a = item.data;
  const [whole, setWhole] = useState<string | null>(null);
  const running = a.phase !== "completed" && !ended;
  const look = running ? "live" : a.ok === false ? "failed" : a.ok ? "ok" : "stopped";
  const mark = running ? "●" : a.ok === false ? "✕" : a.ok ? "✓" : "·";
  const output: string = whole ?? a.output ?? "";
  const more = a.output_blob && whole === null;
  const body = output || a.changes?.length || a.message;
  const line = (
    <>
      <span class={"mark " + look} role="img" aria-label={running ? "running" : a.ok === false ? "failed" : a.ok ? "succeeded" : "ended"}>{mark}</span>
      <span class="quiet" aria-hidden="true">{icons[a.kind] ?? "·"}</span>
      <span class="what">{visible(a.title || a.tool || a.kind)}</span>
      {a.exit_code !== undefined && a.exit_code !== 0 && <span class="quiet">exit {a.exit_code}</span>}
      {a.duration_ms > 0 && <span class="quiet">{duration(a.duration_ms)}</span>}
    </>
  );
  const cls = "action" + (a.parent ? " sub" : "");
  if (!body) return <div class={cls}><div class="line">{line}</div></div>;
  return (
    <details class={cls} open={a.ok === false || !!a.changes?.length}>
      <summary>{line}</summary>
      <div class="body">
        {a.message && <p>{visible(a.message)}</p>}
        {a.changes?.map((c: { path: string; kind?: string; diff?: string }) => (
          <div key={c.path} class="stack">
            <span><code>{visible(c.path)}</code> <span class="quiet">{c.kind}</span></span>
            {c.diff && <Diff text={c.diff} />}
          </div>
        ))}
        {output && <pre tabIndex={0} aria-label="Output">{visible(whole === null ? output.slice(0, 4096) : output)}</pre>}
        {(more || (whole === null && output.length > 4096)) && (
          <div>
            <button
              onClick={() => {
                if (!a.output_blob) return setWhole(a.output);
                request("GET", `${runPath(info.id)}/blobs/${encodeURIComponent(a.output_blob.blob ?? a.output_blob)}`).then(r => r.text()).then(t => setWhole(t.slice(0, 1_000_000)), e => setWhole(words(e)));
              }}
            >
              Show all of it
            </button>
          </div>
        )}
      </div>
    </details>
  );
}

function Piece({ item, info, ended }: { item: Item; info: Info; ended: boolean }) {
  const d = item.data;
  switch (item.type) {
    case "message":
      return d?.role && d.role !== "assistant" ? <div class="prompt">{visible(item.text)}</div> : <Said text={item.text} />;
    case "reasoning":
      return (
        <details class="thought">
          <summary>Thought: {visible(item.text.split("\n")[0]!.replaceAll("*", "").slice(0, 120))}</summary>
          <Said text={item.text} />
        </details>
      );
    case "action":
      return <ActionView item={item} info={info} ended={ended} />;
    case "plan":
      return (
        <ul class="plan" aria-label="Plan">
          {(d.items as { text: string; status: string }[]).map((p, i) => (
            <li key={i} class={p.status}>
              <span role="img" aria-label={p.status.replace("_", " ")}>{p.status === "completed" ? "☑" : p.status === "in_progress" ? "▸" : "☐"}</span>
              <span>{visible(p.text)}</span>
            </li>
          ))}
        </ul>
      );
    case "ask": {
      const open = asks.value.find(a => a.run === info.id && a.seq === item.seq);
      return open && !item.answered ? <AskCard ask={open} inRun /> : <AnsweredAsk item={item} />;
    }
    case "retry":
      return <p class="aside">Model request failed{d.reason ? ": " + visible(d.reason) : ""}; attempt {d.attempt}{d.max ? ` of ${d.max}` : ""}.</p>;
    case "notice":
      return <Notice item={item} />;
    case "output":
      return <div class="out"><OutputText item={item} info={info} /></div>;
    case "truncated":
      return <Gap item={item} />;
  }
  return null;
}
