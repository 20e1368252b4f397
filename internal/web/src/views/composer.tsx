// The field with which cells and prompts are sent. A draft is kept for each run.
import { useRef, useState } from "preact/hooks";
import { control } from "../control.ts";
import { post, runPath, words, type Info, type TurnInfo } from "../api.ts";
import { recall, remember } from "../prefs.ts";
import { link } from "../link.ts";

export function Composer({ info, kind, label, button, keys, history }: { info: Info; kind: "cell" | "prompt"; label: string; button: string; keys: "enter" | "shift"; history: string[] }) {
  const name = "draft-" + info.id;
  const [text, setText] = useState(() => recall(name));
  const [error, setError] = useState("");
  const [sending, setSending] = useState(false);
  const place = useRef(-1);
  const escaped = useRef(0);
  const set = (t: string) => {
    setText(t);
    remember(name, t);
  };
  const send = async () => {
    if (!text.trim() || sending || link.value.lostAt) return;
    setSending(true);
    setError("");
    try {
      // The id makes it safe to send again what may have arrived.
      const id = crypto.getRandomValues(new Uint32Array(4)).join("-");
      await post<TurnInfo>(runPath(info.id) + "/turns", { id, [kind]: kind === "cell" ? { code: text } : { text } });
      set("");
      place.current = -1;
      scrollTo({ top: document.documentElement.scrollHeight }); // what comes is followed
    } catch (e) {
      setError(words(e));
    }
    setSending(false);
  };
  const key = (e: KeyboardEvent) => {
    const field = e.currentTarget as HTMLTextAreaElement;
    if (e.key === "Enter" && !e.isComposing && (keys === "enter" ? !e.shiftKey : e.shiftKey || e.ctrlKey || e.metaKey)) {
      e.preventDefault();
      void send();
    } else if (e.key === "ArrowUp" && field.selectionStart === 0 && field.selectionEnd === 0 && history.length) {
      place.current = place.current < 0 ? history.length - 1 : Math.max(0, place.current - 1);
      set(history[place.current]!);
      setTimeout(() => field.setSelectionRange(0, 0));
      e.preventDefault();
    } else if (e.key === "Escape") {
      if (Date.now() - escaped.current < 600 && info.turn) void control(info, "interrupt");
      escaped.current = Date.now();
    }
  };
  const lost = !!link.value.lostAt;
  return (
    <div class="composer">
      <label for="composer">{label}</label>
      <textarea id="composer" spellcheck={kind === "prompt"} value={text} onInput={e => set(e.currentTarget.value)} onKeyDown={key} aria-describedby="composer-help" />
      {error && <p role="alert" class="aside bad">{error}</p>}
      <div class="acts">
        <button class="primary" disabled={!text.trim() || sending || lost} onClick={() => void send()}>{button}</button>
        {!!info.turn && <button onClick={() => void control(info, "interrupt")}>Interrupt the turn</button>}
        <span id="composer-help" class="quiet">
          {lost ? "The connection is lost: nothing is sent." : keys === "enter" ? <><kbd>Enter</kbd> sends, <kbd>Shift Enter</kbd> is a new line</> : <><kbd>Shift Enter</kbd> runs it, <kbd>↑</kbd> brings back earlier ones</>}
        </span>
      </div>
    </div>
  );
}
