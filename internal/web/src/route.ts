// Where the page is. Everything has an address.
import { signal } from "@preact/signals";

const read = () => ({ path: location.pathname, query: new URLSearchParams(location.search) });

export const route = signal(read());

/** go shows another address; replace keeps it out of the history. */
export function go(to: string, replace = false) {
  if (to === location.pathname + location.search) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  route.value = read();
}

/** setQuery changes parameters of the address; empty ones are removed. */
export function setQuery(values: Record<string, string>, replace = true) {
  const q = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value) q.set(name, value);
    else q.delete(name);
  }
  const text = q.toString().replaceAll("%3A", ":");
  go(location.pathname + (text ? "?" + text : ""), replace);
}

addEventListener("popstate", () => (route.value = read()));

// Links within the console do not load the page again.
document.addEventListener("click", e => {
  if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  const a = (e.target as Element | null)?.closest?.("a[href]");
  if (!(a instanceof HTMLAnchorElement) || a.target || a.hasAttribute("download") || a.origin !== location.origin) return;
  if (a.pathname.startsWith("/v1/") || a.pathname.startsWith("/assets/") || a.pathname.startsWith("/t/") || a.pathname.endsWith(".json")) return;
  if (a.hash && a.pathname === location.pathname) return;
  e.preventDefault();
  go(a.pathname + a.search);
});
