// One run: what it is, what can be done with it, and its views.
import { useEffect, useState } from "preact/hooks";
import { get, post, request, runPath, type Info } from "../api.ts";
import { control } from "../control.ts";
import { age, bytes, date, directory, duration, label, took } from "../format.ts";
import { useActs } from "../keys.ts";
import { loadTerminal } from "../lazy.ts";
import { link } from "../link.ts";
import { go, route } from "../route.ts";
import { outcomeText, status } from "../status.ts";
import { beAt, forget, gone, infos, may, note, now, presence, session, viewerName, waitingCount } from "../store.ts";
import { attempt, confirm, copy, Empty, Mark, Menu, overlay, Skeleton, Wrong } from "../ui.tsx";
import { Failure } from "../api.ts";
import { Log } from "./log.tsx";
import { Part } from "./part.tsx";

/** views are the tabs of a run, the best one first. */
function views(info: Info): [string, string][] {
  const all: [string, string][] = [];
  if (info.tty) all.push(["terminal", "Terminal"]);
  if (info.engine === "kernel" || info.engine === "sandbox") all.push(["cells", "Cells"]);
  if (info.engine === "agent") all.push(["conversation", "Conversation"]);
  all.push(["log", "Log"], ["events", "Events"], ["facts", "Facts"]);
  return all;
}

export function Run({ id }: { id: string }) {
  const info = infos.value.get(id);
  const [error, setError] = useState<unknown>(null);
  const load = () => {
    setError(null);
    get<Info>(runPath(id)).then(i => note([i]), setError);
  };
  useEffect(load, [id]);
  useEffect(() => beAt(id), [id]);
  useEffect(() => {
    if (info) document.title = `${waitingCount.value ? `(${waitingCount.value}) ` : ""}${status(info).mark} ${label(info).slice(0, 80)} · Spool`;
  }, [info, waitingCount.value]);
  if (error instanceof Failure && error.status === 404)
    return (
      <div class="pane padded">
        <h1 class="sr">Run</h1>
        <Empty title="There is no such run, or you may not see it">
          <p>
            Its owner can show it to you with <code>spool share {id.slice(0, 12)}</code>. <a href="/">All runs</a>
          </p>
        </Empty>
      </div>
    );
  if (!info && gone.has(id))
    return (
      <div class="pane padded">
        <h1 class="sr">Run</h1>
        <Empty title="This run was deleted">
          <p>
            <a href="/">All runs</a>
          </p>
        </Empty>
      </div>
    );
  if (!info)
    return (
      <div class="pane padded">
        <h1 class="sr">Run {id}</h1>
        {error !== null ? <Wrong error={error} again={load} /> : <Skeleton label="Loading the run" />}
      </div>
    );
  return <Loaded info={info} />;
}

function Loaded({ info }: { info: Info }) {
  const tabs = views(info);
  const asked = route.value.query.get("view") ?? (route.value.query.has("line") ? "log" : route.value.query.has("seq") ? "events" : "");
  const view = tabs.some(t => t[0] === asked) ? asked : tabs[0]![0];
  useEffect(() => void (view === "terminal" && loadTerminal().catch(() => {})), [view]); // beside its view
  const live = info.state !== "closed";
  const s = status(info);
  const canControl = live && may("runs:control");

  const stop = () => confirm("Stop this run?", <p>SIGTERM goes to <b>{label(info).slice(0, 120)}</b>; what does not end in time is killed.</p>, "Stop", () => void control(info, "stop"));
  const kill = () => confirm("Kill this run?", <p>All processes of <b>{label(info).slice(0, 120)}</b> end at once, without a chance to clean up.</p>, "Kill", () => void control(info, "kill"));
  const remove = () =>
    confirm("Delete this run?", <p>Its log of {bytes(info.bytes)} is deleted. This cannot be undone.</p>, "Delete", () =>
      void attempt(() => request("DELETE", runPath(info.id)), "Deleted").then(ok => {
        if (!ok) return;
        forget(info.id);
        go("/");
      }),
    );
  const restart = () => confirm("Restart this kernel?", <p>A fresh interpreter begins; all variables are lost. The log goes on.</p>, "Restart", () => void control(info, "restart"));
  const fork = () =>
    void attempt(async () => {
      const made = await post<Info>(runPath(info.id) + "/fork", {});
      note([made]);
      go("/runs/" + made.id);
    }, "Forked");

  const items: { text: string; act: () => void; danger?: boolean; keys?: string }[] = [];
  if (canControl) items.push({ text: "Kill", act: kill, danger: true, keys: "Shift K" });
  if (canControl && info.engine === "kernel") items.push({ text: "Restart the interpreter", act: restart });
  if (may("runs:start") && live && info.engine === "kernel") items.push({ text: "Fork", act: fork });
  items.push({ text: "Copy the link", act: () => void copy(location.href.replace(/#.*/, ""), "Link copied") });
  items.push({ text: "Export", act: () => (overlay.value = () => <Part name="Export" props={{ info }} label="Export" />) });
  if (!live && may("runs:delete")) items.push({ text: "Delete", act: remove, danger: true });
  const shared = !!session.value?.runs?.length;

  useActs(
    [
      ...tabs.map(([name, text]) => ({ keys: "", text: "Show: " + text, run: () => go(`/runs/${info.id}?view=${name}`) })),
      ...(canControl
        ? [
            { keys: "i", text: "Interrupt the run", run: () => void control(info, "interrupt") },
            { keys: "Shift+S", text: "Stop the run", run: stop },
            { keys: "Shift+K", text: "Kill the run", run: kill },
          ]
        : []),
    ],
    info.id,
    live,
    canControl,
  );

  const t = now.value;
  const lost = !!link.value.lostAt;
  const why = lost ? "The connection is lost: nothing is sent" : undefined;
  const viewers = presence.value.get(info.id) ?? [];
  return (
    <div class="pane run">
      <div class="run-top">
        <div class="run-title">
          <div class="name">
            <Mark info={info} />
            <h1 title={label(info).slice(0, 2000)}>{label(info).slice(0, 400)}</h1>
          </div>
          {live && (
            <span class={"pill " + s.look} role="status">
              {s.word} {age(took(info, t))}
            </span>
          )}
          <div class="run-acts">
            {canControl && <button disabled={lost} title={why} onClick={() => void control(info, "interrupt")}>Interrupt</button>}
            {canControl && <button disabled={lost} title={why} onClick={stop}>Stop</button>}
            {!shared && <button onClick={() => (overlay.value = () => <Part name="Share" props={{ info }} label="Share" />)}>Share</button>}
            <Menu label="More acts" items={items} />
          </div>
        </div>
        <div class="run-facts">
          <span>{info.engine}</span>
          {info.node && <span>on {info.node}</span>}
          {info.cwd && <span title={info.cwd}>{directory(info.cwd)}</span>}
          <span title={date(info.created)}>started {age(t - Date.parse(info.created))} ago</span>
          {info.tty && info.size && (
            <span>
              {info.size.cols}×{info.size.rows}
            </span>
          )}
          <span>{bytes(info.bytes)}</span>
          {viewers.length > 1 && <span title={viewers.map(viewerName).join("\n")}>{viewers.length} watch</span>}
        </div>
        <div class="tab-row">
          <nav class="tabs" aria-label="Views">
            {tabs.map(([name, text]) => (
              <a key={name} href={`/runs/${info.id}?view=${name}`} aria-current={view === name ? "page" : undefined}>
                {text}
              </a>
            ))}
          </nav>
          {!live && <Ended info={info} />}
        </div>
      </div>
      {view === "log" && <Log key={info.id} info={info} />}
      {view === "terminal" && <Part name="Terminal" key={"terminal" + info.id} props={{ info }} label="Terminal" />}
      {view === "cells" && <Part name="Cells" key={"cells" + info.id} props={{ info }} label="Cells" />}
      {view === "conversation" && <Part name="Conversation" key={"conversation" + info.id} props={{ info }} label="Conversation" />}
      {view === "events" && <Part name="Events" key={"events" + info.id} props={{ info }} label="Events" />}
      {view === "facts" && <Part name="Facts" key={"facts" + info.id} props={{ info }} label="Facts" />}
    </div>
  );
}

/** Ended says how a run ended, and what is not known as not known. */
function Ended({ info }: { info: Info }) {
  const o = info.outcome;
  const s = status(info);
  if (!o) return null;
  return (
    <div class={"outcome " + s.look} role="status" title={outcomeText(o)}>
      <b>{outcomeText(o)}</b> · {duration(took(info, 0))}
      {o.kind === "unknown" && " · Nobody saw how it ended. What is in the log is true; it may have done more."}
    </div>
  );
}
