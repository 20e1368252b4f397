// Keys. Each screen says what its keys do; the help and the palette show all of them.
import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { prefs } from "./prefs.ts";
import { overlay } from "./ui.tsx";

export interface Act {
  keys: string; // such as "g r", "Shift+S", "?"
  text: string;
  run: () => void;
}

const layers = signal<Act[][]>([]);

/** acts are all acts of the page as it is now. */
export const acts = () => layers.value.flat();

/** useActs offers acts while the component is shown: from the moment of its drawing, so
 * that no key meets the acts of what was shown before. */
export function useActs(list: Act[], ...deps: unknown[]) {
  useLayoutEffect(() => {
    layers.value = [...layers.peek(), list];
    return () => {
      layers.value = layers.peek().filter(l => l !== list);
    };
  }, deps);
}

function name(e: KeyboardEvent): string {
  let n = e.key;
  if (n === " ") n = "Space";
  if (n.length === 1 && e.shiftKey && /[a-z]/i.test(n)) n = "Shift+" + n.toUpperCase();
  else if (n.length > 1 && e.shiftKey) n = "Shift+" + n;
  if (e.ctrlKey || e.metaKey) n = "Ctrl+" + (n.length === 1 ? n.toUpperCase() : n);
  return n;
}

/** typing is whether keys belong to a field or a terminal. */
function typing(target: EventTarget | null): boolean {
  const e = target as HTMLElement | null;
  return !!e?.closest?.("input, textarea, select, [contenteditable], .xterm, dialog[open]");
}

let first = "";
let timer: ReturnType<typeof setTimeout> | undefined;

addEventListener("keydown", e => {
  if (e.defaultPrevented || e.altKey) return;
  const n = name(e);
  const plain = !n.startsWith("Ctrl+");
  if (plain && overlay.value) return; // they belong to what opens
  if (plain && (typing(e.target) || (!prefs.singleKeys.value && n.length <= 7 && !/^(Arrow|End|Home|F\d|Enter|Escape)/.test(n)))) return;
  if (n === "Enter" && (e.target as Element).closest?.("a, button, [role=menuitem], summary")) return;
  if (n === "Space" && (e.target as Element).closest?.("a, button, summary")) return;
  const all = acts();
  const combined = first ? first + " " + n : n;
  clearTimeout(timer);
  first = "";
  // The newest layer wins.
  const act = all.findLast(a => a.keys === combined) ?? all.findLast(a => a.keys === n);
  if (act) {
    e.preventDefault();
    act.run();
    return;
  }
  if (plain && all.some(a => a.keys.startsWith(n + " "))) {
    first = n;
    timer = setTimeout(() => (first = ""), 1000);
    e.preventDefault();
  }
});
