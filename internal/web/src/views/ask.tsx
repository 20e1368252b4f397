// A question that a run puts, with the ways to answer. The log says when it is answered,
// not the answer to the request.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Failure, get, post, query, runPath, words, type Ask, type AskAsk, type EventPage, type Option } from "../api.ts";
import { age, directory, duration } from "../format.ts";
import { visible } from "../sgr.ts";
import { link } from "../link.ts";
import { answering, may, now, type Settled } from "../store.ts";
import { Diff } from "./said.tsx";

/** Approval and Questions are what agents put into asks. */
interface AskData {
  command?: string;
  cwd?: string;
  reason?: string;
  tool?: string;
  paths?: string[];
  input?: unknown;
  changes?: { path: string; kind?: string; diff?: string }[];
  questions?: { id: string; header?: string; text: string; options?: Option[]; multiple?: boolean; secret?: boolean }[];
}

const kindWords: Record<string, string> = { allow_once: "once", allow_always: "always", reject_once: "once", reject_always: "always" };

/** optionsOf are the answers to choose from. */
export function optionsOf(ask: AskAsk): Option[] {
  if (ask.options?.length) return ask.options;
  if (ask.kind === "approval")
    return [
      { id: "allow", label: "Allow once", kind: "allow_once" },
      { id: "allow_session", label: "Allow for this session", kind: "allow_always" },
      { id: "deny", label: "Deny", kind: "reject_once" },
    ];
  return [];
}

/** Why fetches what the agent said or thought last before it asked. */
function Why({ ask: a }: { ask: Ask }) {
  const [text, setText] = useState("");
  const look = async () => {
    try {
      const page = await get<EventPage>(runPath(a.run) + "/events" + query({ after: Math.max(0, a.seq - 500) || undefined, kind: ["message", "reasoning"], max_bytes: 1 << 20 }));
      const last = page.events.findLast(e => e.seq < a.seq && (e.data as { text?: string }).text);
      setText(last ? `“${(last.data as { text: string }).text.trim().slice(-600)}”` : "It said nothing before.");
    } catch (e) {
      setText(words(e));
    }
  };
  return text ? <p class="quiet">Why? {visible(text)}</p> : <div><button class="plain" onClick={() => void look()}>Why?</button></div>;
}

/** AskCard shows an ask, or what has become of it since it was shown. */
export function AskCard({ ask: a, inRun, hide, settled }: { ask: Ask; inRun?: boolean; hide?: () => void; settled?: Settled | undefined }) {
  const [state, setState] = useState<{ sending: boolean; text: string }>({ sending: false, text: "" });
  const [text, setText] = useState("");
  const [typed, setTyped] = useState("");
  const [answers, setAnswers] = useState<Record<string, string>>({});
  const form = useRef<HTMLFormElement>(null);
  const ask = a.ask;
  const data = (ask.data && typeof ask.data === "object" ? ask.data : {}) as AskData;
  const options = optionsOf(ask);
  const questions = data.questions ?? [];
  const card = useRef<HTMLElement>(null);
  const tall = useRef(0); // as it was when it could be answered
  useLayoutEffect(() => {
    if (!settled) tall.current = card.current!.offsetHeight;
  });
  const canAnswer = may("asks:answer");
  const lost = !!link.value.lostAt;
  const busy = state.sending || !canAnswer || lost;
  // What a policy calls dangerous is allowed by who has read it.
  const dangerous = ask.retype ? (data.command || ask.name || "").trim().split(/\s+/).join(" ") : "";
  const unread = dangerous !== "" && typed.trim().split(/\s+/).join(" ") !== dangerous;

  const answer = async (value: unknown, error?: string) => {
    setState({ sending: true, text: "" });
    answering(a);
    try {
      await post(`${runPath(a.run)}/asks/${a.seq}`, error ? { error: { message: error } } : { data: value, ...(dangerous ? { retype: typed } : {}) });
    } catch (e) {
      if (e instanceof Failure && e.code === "not_asked") {
        const by = e.problem?.by;
        setState({ sending: true, text: `Answered ${by ? "by " + by : "elsewhere"}${e.problem?.time ? ", " + age(now.value - Date.parse(e.problem.time)) + " ago" : ""}.` });
      } else setState({ sending: false, text: words(e) });
    }
  };
  const waited = now.value - Date.parse(a.time);
  const left = ask.deadline ? Date.parse(ask.deadline) - now.value : 0;
  return (
    <article ref={card} class={"card " + (settled ? "settled" : "ask")} style={settled && { minHeight: tall.current + "px" }} aria-label={`${a.name || a.engine} ${settled ? "asked" : "asks"}`} data-ask={`${a.run}/${a.seq}`}>
      <header>
        <span class={settled ? "mark" : "mark waiting"} aria-hidden="true">⚑</span>
        {!inRun && <strong><a href={"/runs/" + a.run}>{a.name || `${a.engine} ${a.run.slice(0, 8)}`}</a></strong>}
        <span>{a.engine}</span>
        {a.cwd && !inRun && <span>{directory(a.cwd)}</span>}
        {!settled && <span>waiting {age(waited)}</span>}
        {!settled && ask.deadline && <span>{left > 0 ? `stops waiting in ${duration(left - (left % 1000))}` : "has stopped waiting"}</span>}
      </header>
      {ask.prompt && ask.prompt !== data.command && <p>{visible(ask.prompt)}</p>}
      {data.command && (
        <div class="stack">
          <span class="quiet">run{data.cwd ? ` in ${directory(data.cwd)}` : ""}:</span>
          <pre tabIndex={0} aria-label="Command">{visible(data.command)}</pre>
        </div>
      )}
      {!data.command && !data.changes?.length && ask.name && ask.kind !== "input" && !questions.length && (
        <p>
          {ask.kind === "tool" ? "calls the tool " : "wants "}
          <code>{visible(ask.name)}</code>
        </p>
      )}
      {ask.kind === "tool" && ask.data !== undefined && <pre tabIndex={0} aria-label="Arguments">{visible(JSON.stringify(ask.data, null, 2).slice(0, 4000))}</pre>}
      {data.changes?.map(c => (
        <div key={c.path} class="stack">
          <span><code>{visible(c.path)}</code> <span class="quiet">{c.kind}</span></span>
          {c.diff && <Diff text={c.diff} />}
        </div>
      ))}
      {data.reason ? <p class="quiet">Why? “{visible(data.reason)}”</p> : !inRun && a.engine === "agent" && !settled && <Why ask={a} />}
      {settled ? (
        <div class="acts" role="status">{visible(settled.text)}, {age(now.value - settled.at)} ago</div>
      ) : (
        <>
          {questions.length > 0 && (
            <form
              class="stack"
              onSubmit={e => {
                e.preventDefault();
                void answer({ choice: "", answers });
              }}
            >
              {questions.map(q => (
                <fieldset key={q.id} class="stack" style={{ border: 0, padding: 0, margin: 0 }}>
                  <legend>{visible(q.text)}</legend>
                  {q.options?.map(o => (
                    <div class="check" key={o.id}>
                      <input type="radio" id={`${a.seq}-${q.id}-${o.id}`} name={`${a.seq}-${q.id}`} onChange={() => setAnswers({ ...answers, [q.id]: o.id })} />
                      <label for={`${a.seq}-${q.id}-${o.id}`}>{visible(o.label || o.id)}</label>
                    </div>
                  ))}
                  {!q.options?.length && <input type={(q.secret ? "password" : "text") as "text"} aria-label={q.text} onInput={e => setAnswers({ ...answers, [q.id]: e.currentTarget.value })} />}
                </fieldset>
              ))}
              <div class="acts"><button class="primary" disabled={busy || questions.some(q => !answers[q.id])}>Answer</button></div>
            </form>
          )}
          {dangerous && questions.length === 0 && (
            <div class="field">
              <label for={`retype-${a.run}-${a.seq}`}>This is dangerous. To allow it, type it again:</label>
              <input id={`retype-${a.run}-${a.seq}`} class="mono" type="text" autocomplete="off" autocapitalize="off" spellcheck={false} value={typed} disabled={busy} onInput={e => setTyped(e.currentTarget.value)} onPaste={e => e.preventDefault()} />
            </div>
          )}
          {questions.length === 0 && options.length > 0 && (
            <div class="acts" role="group" aria-label="Answers">
              {options.map((o, i) => {
                const deny = /^(reject|deny)/.test(o.kind ?? "") || /^deny/.test(o.id);
                return (
                  <button key={o.id} class={i === 0 && !deny ? "primary" : deny ? "danger" : ""} disabled={busy || (unread && !deny)} onClick={() => void answer(o.id)} data-key={i + 1}>
                    {visible(o.label || o.id)}
                    {o.label && o.kind && !o.label.toLowerCase().includes(kindWords[o.kind] ?? "\0") && kindWords[o.kind] && <span class="quiet">({kindWords[o.kind]})</span>}
                  </button>
                );
              })}
              {hide && <button onClick={hide}>Not now</button>}
            </div>
          )}
          {questions.length === 0 && options.length === 0 && (
            <form
              ref={form}
              class="stack"
              onSubmit={e => {
                e.preventDefault();
                if (ask.kind !== "tool") return void answer(text);
                try {
                  void answer(text ? JSON.parse(text) : null);
                } catch {
                  setState({ sending: false, text: "This is no JSON." });
                }
              }}
            >
              <label for={`answer-${a.run}-${a.seq}`}>{ask.kind === "tool" ? "Result, as JSON" : ask.secret ? "Secret answer" : "Answer"}</label>
              <input id={`answer-${a.run}-${a.seq}`} type={(ask.secret ? "password" : "text") as "text"} autocomplete="off" value={text} disabled={busy} onInput={e => setText(e.currentTarget.value)} />
              <div class="acts">
                <button class="primary" disabled={busy}>Send</button>
                {hide && <button type="button" onClick={hide}>Not now</button>}
              </div>
            </form>
          )}
          {state.text && <p role="status">{state.text}</p>}
          {state.sending && !state.text && <p role="status" class="quiet">Answering…</p>}
          {!canAnswer && <p class="quiet">You may look, not answer.</p>}
          {canAnswer && lost && <p class="quiet" role="status">The connection is lost: nothing is sent.</p>}
        </>
      )}
    </article>
  );
}
