// What a person has chosen, on this device.
import { effect, signal, type Signal } from "@preact/signals";

const media = (query: string) => matchMedia(query).matches;

const systemDark = signal(media("(prefers-color-scheme: dark)"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", e => (systemDark.value = e.matches));

function pref<T extends string | number | boolean>(name: string, initial: T): Signal<T> {
  let value = initial;
  try {
    const text = localStorage.getItem("spool-" + name);
    const stored: unknown = text === null ? undefined : JSON.parse(text);
    if (typeof stored === typeof initial) value = stored as T;
  } catch {
    // an older or damaged value
  }
  const s = signal<T>(value);
  let first = true;
  effect(() => {
    const v = s.value;
    if (!first) localStorage.setItem("spool-" + name, JSON.stringify(v));
    first = false;
  });
  return s;
}

export const prefs = {
  theme: pref<string>("theme", "system"), // system, light or dark
  density: pref<string>("density", "normal"), // normal or compact
  fontSize: pref<number>("font-size", 13), // of logs and terminals, in pixels
  singleKeys: pref<boolean>("single-keys", true),
  reduceMotion: pref<boolean>("reduce-motion", false),
  screenReader: pref<boolean>("screen-reader", false), // terminals describe themselves
  webgl: pref<boolean>("webgl", false), // terminals are drawn with it
  notify: pref<boolean>("notify", false),
  times: pref<string>("times", "clock"), // of log lines: clock, since, delta or none
  wrap: pref<boolean>("wrap", false),
  editor: pref<string>("editor", ""), // that opens files of logs: vscode, cursor, zed or idea; empty copies their path
};

effect(() => {
  const root = document.documentElement;
  root.dataset["theme"] = prefs.theme.value;
  root.dataset["density"] = prefs.density.value;
  root.dataset["motion"] = prefs.reduceMotion.value ? "reduce" : "";
  root.style.setProperty("--mono-size", prefs.fontSize.value + "px");
});

/** dark is whether the page is dark now. */
export function dark(): boolean {
  return prefs.theme.value === "dark" || (prefs.theme.value === "system" && systemDark.value);
}

/** still is whether nothing may move by itself. */
export function still(): boolean {
  return prefs.reduceMotion.value || media("(prefers-reduced-motion: reduce)");
}

/** remember and recall keep a text of a run on this device, such as a draft. */
export function remember(name: string, value: string) {
  if (value) localStorage.setItem("spool-" + name, value);
  else localStorage.removeItem("spool-" + name);
}

export function recall(name: string): string {
  return localStorage.getItem("spool-" + name) ?? "";
}
