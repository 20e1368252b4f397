// The cells of a kernel or a sandbox.
import { useMemo } from "preact/hooks";
import type { Info } from "../api.ts";
import { clock, duration } from "../format.ts";
import { pieces } from "../python.ts";
import { asks, may } from "../store.ts";
import { visible } from "../sgr.ts";
import type { Item, Turn } from "../turns.ts";
import { Empty, Skeleton, Wrong } from "../ui.tsx";
import { AskCard } from "./ask.tsx";
import { Composer } from "./composer.tsx";
import { AnsweredAsk, Display, Exception, Gap, Notice, OutputText } from "./output.tsx";
import { useMoment } from "./moment.tsx";
import { useStick, useTurns } from "./useturns.ts";

export function Cells({ info }: { info: Info }) {
  const view = useTurns(info);
  const { shown: list, bar, back } = useMoment(info, view.turns.list, "The cells");
  useStick();
  const cells = list.filter(t => t.kind === "cell");
  return (
    <div class="pane padded talk">
      {view.from > 0 && <p class="more"><button onClick={view.earlier}>Show earlier cells</button></p>}
      {!view.caughtUp && <Skeleton label="Loading cells" />}
      {view.caughtUp && cells.length === 0 && <Empty title="No cells yet">{info.state !== "closed" && <p>Write one below.</p>}</Empty>}
      <div class="turns">
        {list.map(t => (
          <CellView key={t.seq || "between-" + t.items[0]?.seq} turn={t} info={info} />
        ))}
      </div>
      {view.problem && <Wrong error={new Error(view.problem)} />}
      <div class="dock">
        {bar}
        {info.state !== "closed" && !back && may("runs:input") && (
          <Composer info={info} kind="cell" label="Cell" button={info.turn ? "Queue" : "Run"} keys="shift" history={cells.map(c => c.input)} />
        )}
      </div>
    </div>
  );
}

function CellView({ turn, info }: { turn: Turn; info: Info }) {
  const d = turn.done;
  const bad = d && d.outcome !== "ok";
  if (turn.kind === "" && turn.items.length === 0) return null;
  return (
    <section class="turn" aria-label={d?.execution_count ? `Cell ${d.execution_count}` : "Cell"} id={"turn-" + turn.seq}>
      <div class="cell">
        <span class="count">{turn.kind ? `[${d?.execution_count ?? (d ? " " : "*")}]` : ""}</span>
        <div class="out" style={{ gridColumn: "auto" }}>
          {turn.kind && <pre class="code" tabIndex={turn.input.split("\n").length > 15 ? 0 : undefined} aria-label="Code">{turn.secret ? "(secret)" : <Python code={turn.input} />}</pre>}
        </div>
        <div class="out">
          {turn.items.map(i => <Piece key={i.seq} item={i} info={info} />)}
          {turn.kind && (
            <p class="quiet" style={{ fontSize: ".84rem" }}>
              {d ? (
                <>
                  {bad && <span class="mark failed" aria-hidden="true">✕ </span>}
                  {d.outcome}
                  {d.duration_ms !== undefined && ` · ${duration(d.duration_ms)}`}
                  {bad && d.error && !turn.items.some(i => i.type === "exception") && ` · ${visible(d.error)}`}
                </>
              ) : info.state === "closed" ? "did not end" : info.turn === turn.seq ? "running" : "waiting"}
              {" · "}{clock(turn.time)}
            </p>
          )}
        </div>
      </div>
    </section>
  );
}

function Python({ code }: { code: string }) {
  const list = useMemo(() => pieces(code), [code]);
  return <>{list.map((p, i) => (p.kind ? <span key={i} class={"py-" + p.kind}>{visible(p.text)}</span> : visible(p.text)))}</>;
}

function Piece({ item, info }: { item: Item; info: Info }) {
  switch (item.type) {
    case "output":
      return <OutputText item={item} info={info} />;
    case "display":
    case "result":
      return <Display item={item} info={info} />;
    case "exception":
      return <Exception item={item} />;
    case "ask": {
      const open = asks.value.find(a => a.run === info.id && a.seq === item.seq);
      return open && !item.answered ? <AskCard ask={open} inRun /> : <AnsweredAsk item={item} />;
    }
    case "notice":
      return <Notice item={item} />;
    case "truncated":
      return <Gap item={item} />;
  }
  return null;
}
