// Parts that all screens use.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Failure, words } from "./api.ts";
import { status } from "./status.ts";
import type { Info } from "./api.ts";

const paths: Record<string, string> = {
  runs: "M3 5h14M3 10h14M3 15h9",
  inbox: "M3 11l2.5-7h9l2.5 7v5H3zM3 11h4l1.2 2.2h3.6L13 11h4",
  plus: "M10 4v12M4 10h12",
  settings: "M4 6h7m4 0h1M4 14h1m4 0h7M13 4v4M7 12v4",
  doctor: "M3 10h3l2-5 4 10 2-5h3",
  search: "M9 3.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM13 13l4 4",
  more: "M5 10h.01M10 10h.01M15 10h.01",
  close: "M5 5l10 10M15 5L5 15",
  down: "M10 4v11M5.5 10.5L10 15l4.5-4.5",
  copy: "M7 7h9v9H7zM4 13V4h9",
  link: "M8.5 11.5l3-3M9 6l1.5-1.5a3.2 3.2 0 0 1 4.6 4.6L13.5 10.6M11 14l-1.5 1.5a3.2 3.2 0 0 1-4.6-4.6L6.5 9.4",
  back: "M12 4l-6 6 6 6",
  next: "M8 4l6 6-6 6",
  up: "M10 16V5M5.5 9.5L10 5l4.5 4.5",
  play: "M6 4l10 6-10 6z",
  keyboard: "M2.5 5.5h15v9h-15zM5.5 8.5h.01M8.5 8.5h.01M11.5 8.5h.01M14.5 8.5h.01M6.5 11.5h7",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}

/** Mark shows the state of a run: by its shape and its colour. */
export function Mark({ info }: { info: Info }) {
  const s = status(info);
  return (
    <span class={"mark " + s.look} role="img" aria-label={s.word} title={s.text}>
      {s.mark}
    </span>
  );
}

/** Late shows its children if they are still there after 150 ms: nothing flashes. */
export function Late({ children }: { children: ComponentChildren }) {
  const [shown, show] = useState(false);
  useEffect(() => {
    const t = setTimeout(() => show(true), 150);
    return () => clearTimeout(t);
  }, []);
  return shown ? <>{children}</> : null;
}

export function Skeleton({ rows = 6, label = "Loading" }: { rows?: number; label?: string }) {
  return (
    <Late>
      <div class="skeleton" role="status" aria-label={label}>
        {Array.from({ length: rows }, (_, i) => (
          <span key={i} style={{ width: `${92 - ((i * 17) % 45)}%` }} />
        ))}
      </div>
    </Late>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** Wrong says what went wrong, and what to do. */
export function Wrong({ error, again }: { error: unknown; again?: () => void }) {
  const f = error instanceof Failure ? error : null;
  return (
    <div class="wrong" role="alert">
      <p>{words(error)}</p>
      {f?.hint && <p class="quiet">{f.hint}</p>}
      {f?.problem?.errors?.map(e => (
        <p class="quiet" key={e.pointer}>
          <code>{e.pointer}</code> {e.detail}
        </p>
      ))}
      {again && <button onClick={again}>Try again</button>}
    </div>
  );
}

/** Toast is a short message at the edge of the page. */
const toasts = signal<{ id: number; text: string; bad: boolean }[]>([]);
let toastId = 0;
export function toast(text: string, bad = false) {
  const id = ++toastId;
  toasts.value = [...toasts.value.slice(-2), { id, text, bad }];
  setTimeout(() => (toasts.value = toasts.value.filter(t => t.id !== id)), bad ? 8000 : 3000);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(t => (
        <div key={t.id} class={t.bad ? "toast bad" : "toast"}>
          {t.text}
        </div>
      ))}
    </div>
  );
}

/** attempt does something and tells if it went wrong. */
export async function attempt(what: () => Promise<unknown>, done = ""): Promise<boolean> {
  try {
    await what();
    if (done) toast(done);
    return true;
  } catch (e) {
    toast(words(e), true);
    return false;
  }
}

export async function copy(text: string, done = "Copied") {
  await attempt(() => navigator.clipboard.writeText(text), done);
}

/** Dialog is modal; the focus returns when it closes. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  const mine = useRef(overlay.peek());
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    ref.current?.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog
      ref={ref}
      aria-labelledby="dialog-title"
      onClose={() => overlay.peek() === mine.current && close()} // another one may be open by now
      onClick={e => e.target === ref.current && ref.current?.close()}
    >
      <div class="dialog">
        <header>
          <h2 id="dialog-title">{title}</h2>
          <button class="plain" aria-label="Close" onClick={() => ref.current?.close()}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

/** What is open over the page, if something is. */
export const overlay = signal<(() => JSX.Element) | null>(null);

/** confirm asks before something that cannot be undone. */
export function confirm(title: string, text: ComponentChildren, act: string, then: () => void) {
  overlay.value = () => (
    <Dialog title={title} close={() => (overlay.value = null)}>
      <div class="stack">{text}</div>
      <footer>
        <button onClick={() => (overlay.value = null)}>Cancel</button>
        <button
          class="danger"
          onClick={() => {
            overlay.value = null;
            then();
          }}
        >
          {act}
        </button>
      </footer>
    </Dialog>
  );
}

/** Menu is a button with a list of acts. */
export function Menu({ label, items }: { label: string; items: { text: string; act: () => void; danger?: boolean; keys?: string }[] }) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    root.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const outside = (e: PointerEvent) => !root.current?.contains(e.target as Node) && setOpen(false);
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, [open]);
  const move = (e: KeyboardEvent) => {
    const all = [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    if (e.key === "ArrowDown") all[(at + 1) % all.length]?.focus();
    else if (e.key === "ArrowUp") all[(at - 1 + all.length) % all.length]?.focus();
    else if (e.key === "Escape") {
      setOpen(false);
      root.current?.querySelector("button")?.focus();
    } else return;
    e.preventDefault();
    e.stopPropagation();
  };
  if (items.length === 0) return null;
  return (
    <div class="menu" ref={root} onKeyDown={move}>
      <button aria-haspopup="menu" aria-expanded={open} aria-label={label} title={label} onClick={() => setOpen(!open)}>
        <Icon name="more" />
      </button>
      {open && (
        <div role="menu" aria-label={label}>
          {items.map(i => (
            <button
              key={i.text}
              role="menuitem"
              tabIndex={-1}
              class={i.danger ? "danger" : ""}
              onClick={() => {
                setOpen(false);
                i.act();
              }}
            >
              {i.text}
              {i.keys && <kbd>{i.keys}</kbd>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

export function Copyable({ text, children }: { text: string; children?: ComponentChildren }) {
  return (
    <span class="copyable">
      <code>{children ?? text}</code>
      <button class="plain" aria-label={"Copy " + (text.length > 40 ? "this" : text)} title="Copy" onClick={() => void copy(text)}>
        <Icon name="copy" />
      </button>
    </span>
  );
}
