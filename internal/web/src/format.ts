// Numbers and times for people.
import type { Info, Truncation } from "./api.ts";

const numbers = new Intl.NumberFormat("en");
export const count = (n: number) => numbers.format(n);

/** plural is a number with its noun. */
export const plural = (n: number, one: string, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  for (const unit of ["KB", "MB", "GB", "TB"]) {
    n /= 1000;
    if (n < 999.5) return `${n < 9.95 ? n.toFixed(1) : Math.round(n)} ${unit}`;
  }
  return `${Math.round(n)} PB`;
}

/** duration is a time span, with two units at most. */
export function duration(ms: number): string {
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return s < 10 ? `${s.toFixed(1)} s` : `${Math.floor(s)} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} m ${Math.floor(s % 60)} s`;
  const h = Math.floor(m / 60);
  if (h < 48) return `${h} h ${m % 60} m`;
  return `${Math.floor(h / 24)} d ${h % 24} h`;
}

/** age is a time span with one unit. */
export function age(ms: number): string {
  const s = Math.max(0, ms) / 1000;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const clock = (t: string | number | Date) => clockFormat.format(new Date(t));

/** fine is the time of day with milliseconds. */
export function fine(t: string): string {
  const d = new Date(t);
  return clockFormat.format(d) + "." + String(d.getMilliseconds()).padStart(3, "0");
}

const dateFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const date = (t: string | number | Date) => dateFormat.format(new Date(t));

/** directory is a path with the home directory as ~. */
export const directory = (path: string | undefined) => (path ?? "").replace(/^\/(home\/[^/]+|root|Users\/[^/]+)(?=\/|$)/, "~");

/** quote is an argument as a shell takes it. */
export const quote = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'");
export const commandLine = (argv: string[]) => argv.map(quote).join(" ");

/** label is what a run is called. */
export function label(info: Info): string {
  if (info.name) return info.name;
  if (info.argv?.length) {
    // sh -c SCRIPT is best known by its script.
    if (info.argv.length === 3 && /(^|\/)(ba|z|da)?sh$/.test(info.argv[0]!) && /^-l?c$/.test(info.argv[1]!)) return info.argv[2]!;
    return commandLine(info.argv);
  }
  if (info.title) return info.title;
  return `${info.engine} ${info.id.slice(0, 8)}`;
}

/** took is how long a run has gone on, or went on. */
export function took(info: Info, now: number): number {
  return (info.ended ? Date.parse(info.ended) : now) - Date.parse(info.created);
}

/** missing says what a truncated event stands for. */
export function missing(t: Truncation): string {
  if (t.to) return `Events ${count(t.from ?? 0)}–${count(t.to)} are no longer kept.`;
  const dropped = Object.entries(t.dropped_bytes ?? {}).map(([stream, n]) => `${bytes(n)} of ${stream}`);
  return `The run reached its output limit${t.limit_bytes ? ` of ${bytes(t.limit_bytes)}` : ""}: ${dropped.join(" and ") || "output was"} dropped here.`;
}
