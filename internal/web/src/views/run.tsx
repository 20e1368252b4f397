// One run: what it is, what can be done with it, and its views.
import { useEffect, useState } from "preact/hooks";
import { get, post, query, request, runPath, type Info, type ShareInfo, type TicketInfo } from "../api.ts";
import { age, bytes, date, directory, duration, label, took } from "../format.ts";
import { useActs } from "../keys.ts";
import { go, route } from "../route.ts";
import { outcomeText, status } from "../status.ts";
import { beAt, forget, gone, infos, may, note, now, presence, session, viewerName, waitingCount } from "../store.ts";
import { attempt, confirm, copy, Dialog, Empty, Mark, Menu, overlay, Skeleton, Wrong } from "../ui.tsx";
import { Failure } from "../api.ts";
import { Cells } from "./cells.tsx";
import { Conversation } from "./conversation.tsx";
import { Events } from "./events.tsx";
import { Facts } from "./facts.tsx";
import { Log } from "./log.tsx";
import { Terminal } from "./terminal.tsx";

/** views are the tabs of a run, the best one first. */
function views(info: Info): [string, string][] {
  const all: [string, string][] = [];
  if (info.tty) all.push(["terminal", "Terminal"]);
  if (info.engine === "kernel" || info.engine === "sandbox") all.push(["cells", "Cells"]);
  if (info.engine === "agent") all.push(["conversation", "Conversation"]);
  all.push(["log", "Log"], ["events", "Events"], ["facts", "Facts"]);
  return all;
}

export async function control(info: Info, op: string) {
  const words: Record<string, string> = { interrupt: "Interrupted", stop: "Stopping", kill: "Killed", restart: "Restarting" };
  await attempt(() => post(runPath(info.id) + "/control", { op }), words[op]);
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
  items.push({ text: "Export", act: () => (overlay.value = () => <Export info={info} />) });
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
  const viewers = presence.value.get(info.id) ?? [];
  return (
    <div class="pane run">
      <div class="run-top">
        <div class="run-title">
          <div class="name">
            <Mark info={info} />
            <h1 title={label(info).slice(0, 2000)}>{label(info).slice(0, 400)}</h1>
          </div>
          <span class={"pill " + s.look} role="status">
            {s.word} {live ? age(took(info, t)) : ""}
          </span>
          <div class="run-acts">
            {canControl && <button onClick={() => void control(info, "interrupt")}>Interrupt</button>}
            {canControl && <button onClick={stop}>Stop</button>}
            {!shared && <button onClick={() => (overlay.value = () => <Share info={info} />)}>Share</button>}
            <Menu label="More acts" items={items} />
          </div>
        </div>
        <div class="run-facts">
          <span>{info.engine}</span>
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
        <nav class="tabs" aria-label="Views">
          {tabs.map(([name, text]) => (
            <a key={name} href={`/runs/${info.id}?view=${name}`} aria-current={view === name ? "page" : undefined}>
              {text}
            </a>
          ))}
        </nav>
      </div>
      {!live && <Ended info={info} />}
      {view === "log" && <Log key={info.id} info={info} />}
      {view === "terminal" && <Terminal key={info.id} info={info} />}
      {view === "cells" && <Cells key={info.id} info={info} />}
      {view === "conversation" && <Conversation key={info.id} info={info} />}
      {view === "events" && <Events key={info.id} info={info} />}
      {view === "facts" && <Facts key={info.id} info={info} />}
    </div>
  );
}

/** Ended says how a run ended, and what is not known as not known. */
function Ended({ info }: { info: Info }) {
  const o = info.outcome;
  const s = status(info);
  if (!o) return null;
  return (
    <div class={"outcome " + s.look}>
      <span>
        <b>{outcomeText(o)}</b> · {duration(took(info, 0))}
      </span>
      {o.kind === "unknown" && <span>Nobody saw how it ended. What is in the log is true; it may have done more.</span>}
    </div>
  );
}

/** save has the browser fetch a file of a run itself, of any size, with a ticket. */
async function save(info: Info, path: string, ending: string) {
  await attempt(async () => {
    const a = document.createElement("a");
    a.href = (await post<TicketInfo>("/v1/tickets", { path: runPath(info.id) + path })).url;
    a.download = `${(info.name || info.id).replace(/[^\w.-]+/g, "-")}.${ending}`;
    a.click();
  });
}

/** Export saves the log in a form for other programs or for people. */
function Export({ info }: { info: Info }) {
  const close = () => (overlay.value = null);
  const python = info.engine === "kernel" || info.engine === "sandbox";
  const forms: [string, string, string][] = [
    ["/output", "log", "The output, byte for byte"],
    ["/export?format=txt", "txt", "What a person reads, as text"],
    ["/export?format=html", "html", "A page that needs no other file"],
    ["/export?format=md", "md", "Markdown"],
    ["/export?format=jsonl", "jsonl", "The events, a JSON object a line"],
  ];
  if (info.engine !== "agent") forms.push(["/export?format=cast", "cast", "A recording for asciinema"]);
  if (python) forms.push(["/export?format=ipynb", "ipynb", "A notebook for Jupyter"]);
  return (
    <Dialog title="Export this run" close={close}>
      <p>Up to the last event that it has now.</p>
      <div class="stack">
        {forms.map(([path, ending, text]) => (
          <button key={path} style={{ justifyContent: "space-between" }} onClick={() => { close(); void save(info, path, ending); }}>
            {text} <code>.{ending}</code>
          </button>
        ))}
      </div>
    </Dialog>
  );
}

/** Share makes addresses with which others see this run, and ends them. */
function Share({ info }: { info: Info }) {
  const [list, setList] = useState<ShareInfo[] | null>(null);
  const [made, setMade] = useState<ShareInfo | null>(null);
  const [hours, setHours] = useState("24");
  const [answer, setAnswer] = useState(false);
  const load = () => get<{ shares: ShareInfo[] }>("/v1/shares" + query({ run: info.id })).then(l => setList(l.shares), () => setList([]));
  useEffect(() => void load(), []);
  const make = () =>
    attempt(async () => {
      const scopes = ["runs:read"];
      if (answer) scopes.push("asks:answer");
      setMade(await post<ShareInfo>(runPath(info.id) + "/shares", { expires: new Date(Date.now() + Number(hours) * 3_600_000).toISOString(), scopes }));
      await load();
    });
  return (
    <Dialog title="Share this run" close={() => (overlay.value = null)}>
      <p>Who has the address sees this run and nothing else, until it expires or you end it.</p>
      <div class="two">
        <div class="field">
          <label for="share-for">Valid for</label>
          <select id="share-for" value={hours} onChange={e => setHours(e.currentTarget.value)}>
            <option value="1">an hour</option>
            <option value="24">a day</option>
            <option value="168">a week</option>
          </select>
        </div>
        <div class="check">
          <input id="share-answer" type="checkbox" checked={answer} onChange={e => setAnswer(e.currentTarget.checked)} />
          <label for="share-answer">may answer what it asks</label>
        </div>
      </div>
      <footer>
        <button class="primary" onClick={() => void make()}>
          Make an address
        </button>
      </footer>
      {made?.url && (
        <div class="preview" role="status">
          <p>This address is shown once:</p>
          <pre>{made.url}</pre>
          <div>
            <button onClick={() => void copy(made.url!, "Address copied")}>Copy the address</button>
          </div>
        </div>
      )}
      {!!list?.length && (
        <ul class="stack" aria-label="Shares">
          {list.map(s => (
            <li key={s.id}>
              <code>{s.id}</code> by {s.by}, {s.expires ? "until " + date(s.expires) : "without an end"}
              {s.last_used ? `, used ${age(now.value - Date.parse(s.last_used))} ago` : ", not used"}{" "}
              <button class="plain danger" onClick={() => void attempt(() => request("DELETE", "/v1/shares/" + s.id), "Ended").then(load)}>
                End
              </button>
            </li>
          ))}
        </ul>
      )}
    </Dialog>
  );
}
