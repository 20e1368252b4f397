// Every open ask of every run, the oldest first.
import { useEffect, useState } from "preact/hooks";
import type { Ask } from "../api.ts";
import { plural } from "../format.ts";
import { useActs } from "../keys.ts";
import { prefs, recall, remember } from "../prefs.ts";
import { asks, now, settled, synced, tidy, type Settled } from "../store.ts";
import { Empty, Skeleton, toast } from "../ui.tsx";
import { AskCard } from "./ask.tsx";

const hideFor = 10 * 60_000;

/** hidden are asks that the person does not want to see now, on this device. */
function hidden(): Record<string, number> {
  try {
    return JSON.parse(recall("not-now") || "{}") as Record<string, number>;
  } catch {
    return {};
  }
}

/** press presses a button of the card that has the focus, or of the first one. */
function press(selector: string) {
  const cards = [...document.querySelectorAll<HTMLElement>(".card.ask")];
  const card = cards.find(c => c.contains(document.activeElement)) ?? cards[0];
  card?.querySelector<HTMLButtonElement>(selector)?.click();
}

export function Inbox() {
  const [, redraw] = useState(0);
  const off = hidden();
  const all = asks.value;
  const shown = all.filter(a => !((off[`${a.run}/${a.seq}`] ?? 0) > now.value));
  // What was answered stays in its place, so that nothing moves under who reads the next.
  const cards = [
    ...shown.map((a): [Ask, Settled | undefined] => [a, undefined]),
    ...settled.value.filter(s => !((off[`${s.ask.run}/${s.ask.seq}`] ?? 0) > now.value)).map((s): [Ask, Settled] => [s.ask, s]),
  ].sort(([a], [b]) => Date.parse(a.time) - Date.parse(b.time));
  useEffect(() => void tidy(), []);
  const hide = (id: string) => {
    const next: Record<string, number> = { [id]: Date.now() + hideFor };
    for (const [k, until] of Object.entries(off)) if (until > Date.now()) next[k] = until;
    remember("not-now", JSON.stringify(next));
    redraw(n => n + 1);
  };
  useActs([
    ...[1, 2, 3, 4, 5, 6, 7, 8, 9].map(n => ({ keys: String(n), text: `Choose answer ${n} of the first ask`, run: () => press(`[data-key="${n}"]`) })),
    { keys: "d", text: "Deny the first ask", run: () => press("button.danger") },
    { keys: "z", text: "Not now", run: () => shown[0] && hide(`${shown[0].run}/${shown[0].seq}`) },
  ], shown.map(a => a.run + a.seq).join());
  const notify = async () => {
    if (!("Notification" in window)) return toast("This browser has no notifications.", true);
    prefs.notify.value = (await Notification.requestPermission()) === "granted";
    if (!prefs.notify.value) toast("The browser does not allow notifications for this page.", true);
  };
  return (
    <>
      <div class="title">
        <h1>Inbox</h1>
        <p class="quiet" role="status">{synced.value && (shown.length ? plural(shown.length, "open ask") : "")}</p>
        <span class="grow" />
        {!prefs.notify.value && <button onClick={() => void notify()}>Notify me</button>}
      </div>
      {!synced.value && <Skeleton rows={4} label="Loading asks" />}
      <div class="cards">
        {cards.map(([a, s]) => (
          <AskCard key={`${a.run}/${a.seq}`} ask={a} settled={s} hide={() => hide(`${a.run}/${a.seq}`)} />
        ))}
      </div>
      {synced.value && shown.length === 0 && (
        <Empty title={all.length ? "Nothing else waits" : "Nobody waits for you"}>
          {all.length > 0 ? (
            <button onClick={() => { remember("not-now", ""); redraw(n => n + 1); }}>Show {plural(all.length, "ask")} put off</button>
          ) : (
            <p>When an agent wants to do something, or a cell calls <code>input()</code>, it is here.</p>
          )}
        </Empty>
      )}
    </>
  );
}
