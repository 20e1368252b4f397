// Starting a run, with the command line and the request that would do the same.
import { useEffect, useState } from "preact/hooks";
import { get, post, words, type Agent, type AgentList, type Info, type SpecRequest } from "../api.ts";
import { commandLine, quote } from "../format.ts";
import { recall, remember } from "../prefs.ts";
import { go } from "../route.ts";
import { may, note } from "../store.ts";
import { asToml, policyOf, type Rules } from "../policy.ts";
import { copy, Empty, Wrong } from "../ui.tsx";
import { split } from "../words.ts";

interface Draft {
  what: "command" | "python" | "sandbox" | "agent";
  command: string;
  shell: boolean;
  tty: boolean;
  cwd: string;
  name: string;
  env: string; // NAME=VALUE, one a line
  wall: string; // seconds
  agent: string;
  speaks: string; // the command of an agent of one's own
  model: string;
  rules: Rules;
  prompt: string;
}

const noRules: Rules = { otherwise: "ask", minutes: "", allow: "", deny: "", retype: "" };
const blank: Draft = { what: "command", command: "", shell: true, tty: false, cwd: "", name: "", env: "", wall: "", agent: "", speaks: "", model: "", rules: noRules, prompt: "" };

function last(): Draft {
  try {
    const old = JSON.parse(recall("new-run") || "{}") as Partial<Draft>;
    return { ...blank, ...old, rules: { ...noRules, ...old.rules } };
  } catch {
    return blank;
  }
}

function environment(text: string): Record<string, string> {
  const set: Record<string, string> = {};
  for (const line of text.split("\n")) {
    const at = line.indexOf("=");
    if (at > 0) set[line.slice(0, at).trim()] = line.slice(at + 1);
  }
  return set;
}

function spec(d: Draft): SpecRequest {
  const s: SpecRequest = { env_policy: { set: environment(d.env) } };
  if (d.cwd) s.cwd = d.cwd;
  if (d.name) s.name = d.name;
  if (Number(d.wall) > 0) s.limits = { wall_ms: Number(d.wall) * 1000 };
  switch (d.what) {
    case "command":
      s.argv = d.shell ? ["sh", "-c", d.command] : split(d.command);
      if (d.tty) s.tty = { rows: 24, cols: 80 };
      else s.stdin = false;
      break;
    case "python":
      s.engine = "kernel";
      s.config = { input: "ask" };
      break;
    case "sandbox":
      s.engine = "sandbox";
      break;
    case "agent": {
      const policy = policyOf(d.rules);
      s.engine = "agent";
      s.config = { agent: d.agent, ...(d.agent === "acp" && { command: split(d.speaks) }), ...(d.model && { model: d.model }), ...(policy && { policy }) };
    }
  }
  if (s.stdin === false) delete s.stdin;
  return s;
}

function shellLine(d: Draft): string {
  const words = ["spool"];
  const env = Object.entries(environment(d.env)).flatMap(([k, v]) => ["--env", `${k}=${v}`]);
  const common = [...(d.name ? ["--name", d.name] : []), ...(d.cwd ? ["--cwd", d.cwd] : []), ...env];
  switch (d.what) {
    case "command":
      words.push("run", ...(d.tty ? ["--tty"] : []), ...common, ...(Number(d.wall) > 0 ? ["--timeout", d.wall + "s"] : []), "--", ...(d.shell ? ["sh", "-c", d.command] : split(d.command)));
      break;
    case "python":
      words.push("py", "--session", d.name || "NAME");
      break;
    case "sandbox":
      words.push("box", ...(d.name ? ["--session", d.name] : []));
      break;
    case "agent": {
      const policy = policyOf(d.rules);
      words.push("agent", ...common, ...(d.model ? ["--model", d.model] : []), ...(policy ? ["--policy", "policy.toml"] : []));
      words.push(d.agent || "AGENT", d.prompt || "PROMPT", ...(d.agent === "acp" ? ["--", ...split(d.speaks)] : []));
      if (policy) return `cat >policy.toml <<'EOF'\n${asToml(policy)}EOF\n${commandLine(words)}`;
    }
  }
  return commandLine(words);
}

/** Policy are the rules for what an agent wants to do. */
function Policy({ rules, set }: { rules: Rules; set: (part: Partial<Rules>) => void }) {
  const lists: [keyof Rules & ("allow" | "deny" | "retype"), string, string][] = [
    ["allow", "Allow these commands", "go test"],
    ["deny", "Deny these commands", "git push"],
    ["retype", "Have me type these again", "rm"],
  ];
  return (
    <fieldset class="policy">
      <legend>Policy</legend>
      <div class="two">
        <div class="field">
          <label for="otherwise">What no rule names</label>
          <select id="otherwise" value={rules.otherwise} onChange={e => set({ otherwise: e.currentTarget.value })}>
            <option value="ask">ask a person</option>
            <option value="allow">allow</option>
            <option value="deny">deny</option>
          </select>
        </div>
        <div class="field">
          <label for="minutes">Minutes until an ask is denied</label>
          <input id="minutes" type="number" min="0" placeholder="10" value={rules.minutes} onInput={e => set({ minutes: e.currentTarget.value })} />
        </div>
      </div>
      <div class="three">
        {lists.map(([name, text, example]) => (
          <div class="field" key={name}>
            <label for={name}>{text}</label>
            <textarea id={name} rows={2} class="mono" spellcheck={false} autoCapitalize="off" placeholder={example + ", one a line"} value={rules[name]} onInput={e => set({ [name]: e.currentTarget.value })} />
          </div>
        ))}
      </div>
    </fieldset>
  );
}

export function NewRun() {
  const [draft, setDraft] = useState(last);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [agents, setAgents] = useState<Agent[] | null>(null);
  const [unlisted, setUnlisted] = useState("");
  useEffect(() => {
    if (draft.what === "agent" && !agents) get<AgentList>("/v1/agents").then(l => setAgents(l.agents), e => setUnlisted(words(e)));
  }, [draft.what]);
  const here = (a: Agent) => !!a.path && !a.error;
  // Until somebody chooses: the first that is there.
  const d = { ...draft, agent: draft.agent || agents?.find(here)?.agent || (agents || unlisted ? "acp" : "") };
  const about = agents?.find(a => a.agent === d.agent);
  const set = (part: Partial<Draft>) => {
    const next = { ...draft, ...part };
    setDraft(next);
    setError(null); // it was about another one
    remember("new-run", JSON.stringify({ ...next, env: "", prompt: "" })); // values may be secret
  };
  if (!may("runs:start")) return <Empty title="You may not start runs"><p>Your session lacks the scope <code>runs:start</code>.</p></Empty>;
  const ready = d.what === "command" ? !!d.command.trim() : d.what === "agent" ? !!d.prompt.trim() && !!d.agent && (d.agent !== "acp" || !!d.speaks.trim()) : true;
  const start = async (e: Event) => {
    e.preventDefault();
    if (!ready || busy) return;
    setBusy(true);
    setError(null);
    try {
      const info = await post<Info>("/v1/runs", spec(d));
      note([info]);
      if (d.what === "agent") {
        await post(`/v1/runs/${info.id}/turns`, { prompt: { text: d.prompt } });
        set({ prompt: "" });
      }
      go("/runs/" + info.id);
    } catch (err) {
      setError(err);
    }
    setBusy(false);
  };
  const kinds: [Draft["what"], string][] = [["command", "Command"], ["python", "Python kernel"], ["sandbox", "Sandbox"], ["agent", "Agent"]];
  const curl = `curl -s -H "Authorization: Bearer $T" -H 'Content-Type: application/json' ${location.origin}/v1/runs -d ${quote(JSON.stringify(spec(d)))}`;
  return (
    <>
      <div class="title"><h1>New run</h1></div>
      <form class="form" onSubmit={start}>
        <div class="choices" role="group" aria-label="What to run">
          {kinds.map(([k, text]) => (
            <button key={k} type="button" class="chip" aria-pressed={d.what === k} onClick={() => set({ what: k })}>{text}</button>
          ))}
        </div>
        {d.what === "command" && (
          <>
            <div class="field">
              <label for="command">Command</label>
              <textarea id="command" rows={3} class="mono" spellcheck={false} autoCapitalize="off" placeholder="make test" value={d.command} onInput={e => set({ command: e.currentTarget.value })} onKeyDown={e => (e.ctrlKey || e.metaKey) && e.key === "Enter" && void start(e)} />
              {!d.shell && d.command && <p class="quiet">Arguments: {split(d.command).map((w, i) => <code key={i}>{w}</code>)}</p>}
            </div>
            <div class="check"><input id="shell" type="checkbox" checked={d.shell} onChange={e => set({ shell: e.currentTarget.checked })} /><label for="shell">With a shell: pipes, variables, <code>&amp;&amp;</code></label></div>
            <div class="check"><input id="tty" type="checkbox" checked={d.tty} onChange={e => set({ tty: e.currentTarget.checked })} /><label for="tty">With a terminal</label></div>
          </>
        )}
        {d.what === "agent" && (
          <>
            <div class="two">
              <div class="field">
                <label for="agent">Agent</label>
                <select id="agent" value={d.agent} onChange={e => set({ agent: e.currentTarget.value })}>
                  {!agents && d.agent !== "acp" && <option value={d.agent}>{d.agent || "Looking for agents…"}</option>}
                  {agents?.map(a => <option key={a.agent} value={a.agent} disabled={!here(a)}>{a.agent} {here(a) ? a.version : a.path ? "(unusable)" : "(not installed)"}</option>)}
                  <option value="acp">another, that speaks ACP</option>
                </select>
              </div>
              <div class="field">
                <label for="model">Model</label>
                <input id="model" type="text" placeholder="as the agent is configured" value={d.model} onInput={e => set({ model: e.currentTarget.value })} />
              </div>
            </div>
            {unlisted && <p class="quiet">Which agents the server has is not known. {unlisted}</p>}
            {about && !here(about) && <p class="quiet">{about.error || <>The server does not have it. To install it: <code>{about.install}</code></>}</p>}
            {d.agent === "acp" && (
              <div class="field">
                <label for="speaks">Command of the agent</label>
                <input id="speaks" type="text" class="mono" spellcheck={false} autoCapitalize="off" placeholder="gemini --acp" value={d.speaks} onInput={e => set({ speaks: e.currentTarget.value })} />
              </div>
            )}
            <div class="field">
              <label for="prompt">Prompt</label>
              <textarea id="prompt" rows={5} value={d.prompt} onInput={e => set({ prompt: e.currentTarget.value })} />
            </div>
            <Policy rules={d.rules} set={part => set({ rules: { ...d.rules, ...part } })} />
          </>
        )}
        {d.what === "python" && <p class="quiet">A live Python interpreter on the machine of the server. Variables of one cell are there in the next.</p>}
        {d.what === "sandbox" && <p class="quiet">Python in a sandbox, without the files and the network of the machine.</p>}
        <div class="two">
          <div class="field">
            <label for="cwd">Directory</label>
            <input id="cwd" type="text" class="mono" spellcheck={false} placeholder="that of the server" value={d.cwd} onInput={e => set({ cwd: e.currentTarget.value })} />
          </div>
          <div class="field">
            <label for="name">Name</label>
            <input id="name" type="text" spellcheck={false} value={d.name} onInput={e => set({ name: e.currentTarget.value })} />
          </div>
        </div>
        <details>
          <summary>Environment and limits</summary>
          <div class="form" style={{ marginTop: ".8rem" }}>
            <div class="field">
              <label for="env">Variables</label>
              <textarea id="env" rows={3} class="mono" spellcheck={false} placeholder="NAME=VALUE, one a line; those of the server are there, too" value={d.env} onInput={e => set({ env: e.currentTarget.value })} />
            </div>
            <div class="field">
              <label for="wall">Seconds until it is ended</label>
              <input id="wall" type="number" min="0" placeholder="no limit" value={d.wall} onInput={e => set({ wall: e.currentTarget.value })} />
            </div>
          </div>
        </details>
        {error !== null && <Wrong error={error} />}
        <div><button class="primary" disabled={!ready || busy}>{busy ? "Starting…" : "Start"}</button></div>
        {ready && (
          <div class="preview">
            <p class="quiet">The same from a shell:</p>
            <pre>{shellLine(d)}</pre>
            <p class="quiet">With curl:</p>
            <pre>{curl}</pre>
            <div class="choices">
              <button type="button" onClick={() => void copy(shellLine(d))}>Copy the command</button>
              <button type="button" onClick={() => void copy(curl)}>Copy the request</button>
            </div>
          </div>
        )}
      </form>
    </>
  );
}
