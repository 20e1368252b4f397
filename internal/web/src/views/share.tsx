// Addresses with which others see a run.
import { useEffect, useState } from "preact/hooks";
import { get, post, query, request, runPath, type Info, type ShareInfo } from "../api.ts";
import { age, date } from "../format.ts";
import { now } from "../store.ts";
import { attempt, copy, Dialog, overlay } from "../ui.tsx";

/** Share makes addresses with which others see this run, and ends them. */
export function Share({ info }: { info: Info }) {
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
