// Parts of the console that are loaded when they are needed.
import type * as markdown from "./markdown.ts";
import type * as more from "./more.tsx";
import type * as terminal from "./terminal.ts";
import type * as webgl from "./webgl.ts";

// The version is in the address of the script of the page: its parts have the same.
const version = new URL(document.querySelector<HTMLScriptElement>("script[type=module]")!.src).search;

function once<T>(name: string): () => Promise<T> {
  let part: Promise<T> | null = null;
  return () => (part ??= (import(`/assets/${name}.js${version}`) as Promise<T>).catch(e => {
    part = null;
    throw e;
  }));
}

export const loadMore = once<typeof more>("more");

export const loadMarkdown = once<typeof markdown>("markdown");

export const loadWebgl = once<typeof webgl>("webgl");

const loadScript = once<typeof terminal>("terminal");

export async function loadTerminal() {
  if (!document.querySelector("link[data-terminal]")) {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.dataset["terminal"] = "";
    style.href = "/assets/terminal-style.css" + version;
    const loaded = new Promise(resolve => (style.onload = style.onerror = resolve));
    document.head.append(style);
    await loaded;
  }
  return loadScript();
}
