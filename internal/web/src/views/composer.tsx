// The field with which cells and prompts are sent. A draft is kept for each run.
import { useRef, useState } from "preact/hooks";
import { control } from "../control.ts";
import { post, runPath, words, type Info, type TurnInfo } from "../api.ts";
import { recall, remember } from "../prefs.ts";
import { link } from "../link.ts";
import { AttachButton, AttachedList, encoded, useAttachments } from "./attachments.tsx";

export function Composer({ info, kind, label, button, keys, history, images: canShow = false }: { info: Info; kind: "cell" | "prompt"; label: string; button: string; keys: "enter" | "shift"; history: string[]; images?: boolean }) {
  const name = "draft-" + info.id;
  const [text, setText] = useState(() => recall(name));
  const [error, setError] = useState("");
  const place = useRef(-1);
  const escaped = useRef(0);
  const images = useAttachments(info);
  const [over, setOver] = useState(false); // something is dragged over it
  const set = (t: string) => {
    setText(t);
    remember(name, t);
  };
  const field = useRef(text); // what is in it now, for what has waited meanwhile
  field.current = text;
  const sent = useRef(Promise.resolve()); // what was sent before
  const nothing = !text.trim() && !images.list.length;
  // The field is free for the next one at once; what could not be sent comes back.
  const send = () => {
    if (nothing || link.value.lostAt) return;
    // The id makes it safe to send again what may have arrived.
    const id = crypto.getRandomValues(new Uint32Array(4)).join("-");
    const files = images.take();
    setText(""); // the draft is kept until it has arrived
    setError("");
    place.current = -1;
    sent.current = sent.current.then(async () => {
      try {
        const shown = files.length ? { images: await encoded(files) } : {};
        await post<TurnInfo>(runPath(info.id) + "/turns", { id, [kind]: kind === "cell" ? { code: text } : { text, ...shown } });
        if (!field.current) remember(name, "");
        scrollTo({ top: document.documentElement.scrollHeight }); // what comes is followed
      } catch (e) {
        set(field.current ? `${text}\n${field.current}` : text);
        images.put(files);
        setError(words(e));
      }
    });
  };
  const key = (e: KeyboardEvent) => {
    const area = e.currentTarget as HTMLTextAreaElement;
    if (e.key === "Enter" && !e.isComposing && (keys === "enter" ? !e.shiftKey : e.shiftKey || e.ctrlKey || e.metaKey)) {
      e.preventDefault();
      send();
    } else if (e.key === "ArrowUp" && area.selectionStart === 0 && area.selectionEnd === 0 && history.length) {
      place.current = place.current < 0 ? history.length - 1 : Math.max(0, place.current - 1);
      set(history[place.current]!);
      setTimeout(() => area.setSelectionRange(0, 0));
      e.preventDefault();
    } else if (e.key === "Escape") {
      if (Date.now() - escaped.current < 600 && info.turn) void control(info, "interrupt");
      escaped.current = Date.now();
    }
  };
  const take = (e: Event, files: FileList | undefined) => {
    if (canShow ? images.add(files) : files?.length && kind === "prompt") {
      e.preventDefault();
      if (!canShow) setError("This agent cannot be shown images.");
    }
  };
  const drag = (e: DragEvent, is: boolean) => {
    if (!canShow || !e.dataTransfer?.types.includes("Files")) return;
    e.preventDefault();
    setOver(is);
  };
  const lost = !!link.value.lostAt;
  return (
    <div
      class={"composer" + (over ? " over" : "")}
      onPaste={e => !e.clipboardData?.types.includes("text/plain") && take(e, e.clipboardData?.files)}
      onDragOver={e => drag(e, true)}
      onDragLeave={e => drag(e, false)}
      onDrop={e => {
        drag(e, false);
        take(e, e.dataTransfer?.files);
      }}
    >
      <label for="composer">{label}</label>
      <textarea id="composer" spellcheck={kind === "prompt"} value={text} onInput={e => set(e.currentTarget.value)} onKeyDown={key} aria-describedby="composer-help" />
      <AttachedList images={images} />
      {error && <p role="alert" class="aside bad">{error}</p>}
      <div class="acts">
        <button class="primary" disabled={nothing || lost} onClick={send}>{button}</button>
        {!!info.turn && <button onClick={() => void control(info, "interrupt")}>Interrupt the turn</button>}
        {canShow && <AttachButton images={images} />}
        <span id="composer-help" class="quiet">
          {lost ? "The connection is lost: nothing is sent." : keys === "enter" ? <><kbd>Enter</kbd> sends, <kbd>Shift Enter</kbd> is a new line</> : <><kbd>Shift Enter</kbd> runs it, <kbd>↑</kbd> brings back earlier ones</>}
        </span>
      </div>
    </div>
  );
}
