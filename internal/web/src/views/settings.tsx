// What a person can choose on this device, and who has access.
import type { Signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { Failure, get, post, request, type Node, type NodeList, type ShareInfo, type ShareList, type TokenInfo, type TokenList } from "../api.ts";
import { age, bytes, date } from "../format.ts";
import { prefs } from "../prefs.ts";
import { may, now, session, signOut } from "../store.ts";
import { attempt, confirm, copy } from "../ui.tsx";

function Choice({ label, value, options }: { label: string; value: Signal<string>; options: [string, string][] }) {
  return (
    <div class="field">
      <span id={"choice-" + label}>{label}</span>
      <div class="choices" role="group" aria-labelledby={"choice-" + label}>
        {options.map(([v, text]) => <button key={v} class="chip" aria-pressed={value.value === v} onClick={() => (value.value = v)}>{text}</button>)}
      </div>
    </div>
  );
}

function Switch({ label, value, change }: { label: string; value: Signal<boolean>; change?: (on: boolean) => void }) {
  const id = "switch-" + label.replace(/\W+/g, "-");
  return (
    <div class="check">
      <input id={id} type="checkbox" checked={value.value} onChange={e => (change ? change(e.currentTarget.checked) : (value.value = e.currentTarget.checked))} />
      <label for={id}>{label}</label>
    </div>
  );
}

const scopes: [string, string][] = [
  ["runs:read", "look at runs"],
  ["runs:input", "type, and send cells and prompts"],
  ["asks:answer", "answer asks"],
  ["runs:control", "interrupt and stop"],
  ["runs:start", "start runs"],
  ["runs:delete", "delete and rename"],
  ["admin", "everything"],
];

/** NewToken makes a token, whose secret is shown once. */
function NewToken({ made }: { made: () => void }) {
  const [name, setName] = useState("");
  const [days, setDays] = useState("30");
  const [chosen, setChosen] = useState(["runs:read"]);
  const [secret, setSecret] = useState("");
  const make = () =>
    attempt(async () => {
      const expires = days === "0" ? undefined : new Date(Date.now() + Number(days) * 86_400_000).toISOString();
      setSecret((await post<TokenInfo>("/v1/tokens", { name: name.trim(), scopes: chosen, expires })).secret ?? "");
      setName("");
      made();
    });
  return (
    <form class="stack" aria-label="New token" onSubmit={e => { e.preventDefault(); void make(); }}>
      <div class="two">
        <div class="field">
          <label for="token-name">Name of a new token</label>
          <input id="token-name" type="text" autocomplete="off" maxLength={64} value={name} onInput={e => setName(e.currentTarget.value)} />
        </div>
        <div class="field">
          <label for="token-days">Valid for</label>
          <select id="token-days" value={days} onChange={e => setDays(e.currentTarget.value)}>
            <option value="1">a day</option>
            <option value="30">30 days</option>
            <option value="365">a year</option>
            <option value="0">ever</option>
          </select>
        </div>
      </div>
      <fieldset class="scopes">
        <legend>May</legend>
        {scopes.map(([scope, text]) => (
          <div class="check" key={scope}>
            <input id={"scope-" + scope} type="checkbox" checked={chosen.includes(scope)} onChange={e => setChosen(e.currentTarget.checked ? [...chosen, scope] : chosen.filter(c => c !== scope))} />
            <label for={"scope-" + scope}>{text}</label>
          </div>
        ))}
      </fieldset>
      <div><button class="primary" disabled={!name.trim() || chosen.length === 0}>Make a token</button></div>
      {secret && (
        <div class="preview" role="status">
          <p>This token is shown once:</p>
          <pre>{secret}</pre>
          <div><button type="button" onClick={() => void copy(secret, "Token copied")}>Copy the token</button></div>
        </div>
      )}
    </form>
  );
}

/** nodesEvery is how often the nodes are asked for while they are in view. */
const nodesEvery = 2000;

/** Nodes lists the nodes of a cluster, and shows nothing where there is none. */
function Nodes() {
  const [nodes, setNodes] = useState<Node[]>([]);
  useEffect(() => {
    let timer = 0;
    let ended = false;
    const look = () =>
      get<NodeList>("/v1/nodes").then(
        l => {
          if (ended) return;
          setNodes(l.nodes);
          timer = window.setTimeout(look, nodesEvery);
        },
        e => {
          // Without a cluster there are none; a server that cannot be reached may come back.
          if (!ended && e instanceof Failure && e.lost) timer = window.setTimeout(look, nodesEvery);
        },
      );
    void look();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, []);
  if (nodes.length === 0) return null;
  return (
    <section class="section" aria-label="Nodes">
      <h2>Nodes</h2>
      <div class="table-box">
        <table>
          <thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col">Live runs</th><th scope="col">Free memory</th><th scope="col">Labels</th><th scope="col">Address</th><th scope="col">Build</th></tr></thead>
          <tbody>
            {nodes.map(n => (
              <tr key={n.name}>
                <td>{n.name}{n.self && " (this one)"}</td>
                <td>{n.state}{n.reason && `: ${n.reason}`}</td>
                <td>{n.live} of {n.slots}</td>
                <td>{n.memory_bytes && `${bytes(n.memory_free_bytes ?? 0)} of ${bytes(n.memory_bytes)}`}</td>
                <td>{Object.entries(n.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(", ")}</td>
                <td>{n.via?.length ? `through ${n.via.join(", ")}` : n.address}</td>
                <td>{n.build}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

export function Settings() {
  const s = session.value!;
  const [shares, setShares] = useState<ShareInfo[] | null>(null);
  const [tokens, setTokens] = useState<TokenInfo[] | null>(null);
  const load = () => {
    get<ShareList>("/v1/shares").then(l => setShares(l.shares), () => {});
    if (may("admin")) get<TokenList>("/v1/tokens").then(l => setTokens(l.tokens), () => {});
  };
  useEffect(load, []);
  const end = (what: string, path: string) => confirm(`End this ${what}?`, <p>Who uses it is cut off within a second or two.</p>, "End", () => void attempt(() => request("DELETE", path), "Ended").then(load));
  const notify = async (on: boolean) => {
    prefs.notify.value = on && "Notification" in window && (await Notification.requestPermission()) === "granted";
  };
  return (
    <>
      <div class="title"><h1>Settings</h1></div>
      <section class="section" aria-label="Looks">
        <h2>Looks</h2>
        <Choice label="Theme" value={prefs.theme} options={[["system", "As the system"], ["light", "Light"], ["dark", "Dark"]]} />
        <Choice label="Density" value={prefs.density} options={[["normal", "Normal"], ["compact", "Compact"]]} />
        <div class="field">
          <label for="font">Size of logs and terminals: {prefs.fontSize.value} px</label>
          <input id="font" type="range" min="10" max="22" value={prefs.fontSize.value} onInput={e => (prefs.fontSize.value = Number(e.currentTarget.value))} />
        </div>
        <Switch label="Draw terminals with WebGL: faster, where the graphics driver does it well" value={prefs.webgl} />
        <Switch label="Move as little as possible" value={prefs.reduceMotion} />
        <Choice label="Files in logs" value={prefs.editor} options={[["", "Copy their path"], ["vscode", "VS Code"], ["cursor", "Cursor"], ["zed", "Zed"], ["idea", "JetBrains"]]} />
      </section>
      <section class="section" aria-label="Keys and help">
        <h2>Keys and help</h2>
        <Switch label="Keys of one letter" value={prefs.singleKeys} />
        <Switch label="Terminals describe themselves to screen readers" value={prefs.screenReader} />
        <Switch label="Notify me of new asks, while another page is in front" value={prefs.notify} change={on => void notify(on)} />
      </section>
      <section class="section" aria-label="This session">
        <h2>This session</h2>
        <dl class="facts">
          <dt>Subject</dt><dd>{s.subject}</dd>
          <dt>May</dt><dd><span class="labels">{s.scopes.map(x => <code key={x}>{x}</code>)}</span></dd>
          {s.id && <><dt>Id</dt><dd><code>{s.id}</code></dd></>}
          {s.expires && <><dt>Ends</dt><dd>{date(s.expires)}, if it is not used until then</dd></>}
        </dl>
        <div><button onClick={() => void signOut()}>Sign out</button></div>
      </section>
      {!!shares?.length && (
        <section class="section" aria-label="Shares">
          <h2>Shares</h2>
          <div class="table-box">
            <table>
              <thead><tr><th scope="col">Run</th><th scope="col">By</th><th scope="col">Until</th><th scope="col">Used</th><th scope="col"><span class="sr">Act</span></th></tr></thead>
              <tbody>
                {shares.map(x => (
                  <tr key={x.id}>
                    <td><a href={"/runs/" + x.run}>{x.run.slice(0, 12)}</a></td>
                    <td>{x.by}</td>
                    <td>{x.expires ? date(x.expires) : "no end"}</td>
                    <td>{x.last_used ? age(now.value - Date.parse(x.last_used)) + " ago" : "never"}</td>
                    <td><button class="danger" onClick={() => end("share", "/v1/shares/" + x.id)}>End</button></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
      {tokens && (
        <section class="section" aria-label="Tokens">
          <h2>Tokens</h2>
          <p class="quiet">For programs, and for people on other devices. Each sees its own runs.</p>
          {tokens.length > 0 && <div class="table-box">
            <table>
              <thead><tr><th scope="col">Name</th><th scope="col">Subject</th><th scope="col">May</th><th scope="col">Used</th><th scope="col"><span class="sr">Act</span></th></tr></thead>
              <tbody>
                {tokens.map(x => (
                  <tr key={x.id}>
                    <td>{x.name}</td>
                    <td>{x.subject}</td>
                    <td>{x.scopes.join(", ")}</td>
                    <td>{x.last_used ? age(now.value - Date.parse(x.last_used)) + " ago" : "never"}</td>
                    <td><button class="danger" onClick={() => end("token", "/v1/tokens/" + x.id)}>Revoke</button></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>}
          <NewToken made={load} />
        </section>
      )}
      <Nodes />
      <section class="section" aria-label="About">
        <h2>About</h2>
        <p class="quiet">Spool {s.server.version}. The console uses the public API, which <a href="/openapi.json">openapi.json</a> describes. <a href="/assets/licences.txt">Licences</a> of what it is made of.</p>
      </section>
    </>
  );
}
