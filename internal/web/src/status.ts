// What the state of a run is called, and how it looks.
import type { Info, Outcome } from "./api.ts";

export interface Status {
  /** look picks the mark and the colour. */
  look: "waiting" | "live" | "ok" | "failed" | "unknown" | "stopped";
  mark: string; // readable without colour
  word: string;
  text: string; // all of it
}

/** outcomeText says how a run ended, as it is known and never as a guess. */
export function outcomeText(o: Outcome): string {
  if (o.kind === "exited") {
    let text = `exited ${o.code}`;
    if (o.signal) text += ` (${o.signal})`;
    return o.reason ? `${text}: ${o.reason}` : text;
  }
  return o.reason ? `${o.kind}: ${o.reason}` : o.kind;
}

export function status(info: Info): Status {
  if (info.state !== "closed" && info.asks?.count)
    return { look: "waiting", mark: "⚑", word: "waiting", text: info.asks.count === 1 ? "waits for an answer" : `waits for ${info.asks.count} answers` };
  if (info.state === "running") {
    const idle = info.engine !== "process" && !info.turn;
    return { look: "live", mark: "●", word: idle ? "idle" : "live", text: idle ? "live and idle" : "live" };
  }
  const o = info.outcome;
  if (!o) return { look: info.state === "closed" ? "unknown" : "live", mark: info.state === "closed" ? "?" : "●", word: info.state, text: info.state };
  const text = outcomeText(o);
  if (o.kind === "unknown") return { look: "unknown", mark: "?", word: "unknown", text };
  if (o.kind === "failed") return { look: "failed", mark: "✕", word: "failed", text };
  if (o.code === 0) return { look: "ok", mark: "✓", word: "exited 0", text };
  if (o.signal) return { look: "stopped", mark: "■", word: o.signal, text };
  return { look: "failed", mark: "✕", word: `exited ${o.code}`, text };
}
