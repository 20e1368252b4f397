// The records of events on the binary WebSocket, and events as the console has them.
import type { Event } from "./api.ts";

/** LogEvent is an event of a log, however it came here. */
export interface LogEvent {
  seq: number;
  time: string;
  kind: string;
  turn?: number;
  stream?: string;
  /** bytes of output, as they were written. */
  bytes?: Uint8Array;
  data?: any;
}

const kinds = ["", "started", "input", "output", "display", "result", "exception", "ask", "action", "message", "reasoning",
  "plan", "usage", "retry", "notice", "done", "truncated", "exited", "failed", "closed", "resized"];
const streams = ["", "stdout", "stderr", "pty"];

const headerSize = 40;
const decoder = new TextDecoder();

/** decodeRecords reads records that follow each other. */
export function decodeRecords(b: Uint8Array, yieldEvent: (e: LogEvent, size: number) => void) {
  const view = new DataView(b.buffer, b.byteOffset, b.byteLength);
  for (let at = 0; at < b.length; ) {
    if (b.length - at < headerSize) throw new Error("a record is cut");
    const size = view.getUint32(at, true);
    const data = view.getUint32(at + 28, true);
    if (size < headerSize + data || at + size > b.length) throw new Error("a record is damaged");
    const ns = view.getBigInt64(at + 16, true);
    const e: LogEvent = {
      seq: Number(view.getBigUint64(at + 8, true)),
      time: new Date(Number(ns / 1_000_000n)).toISOString(),
      kind: kinds[b[at + 24]!] ?? "kind-" + b[at + 24],
    };
    const turn = Number(view.getBigUint64(at + 32, true));
    if (turn) e.turn = turn;
    const stream = b[at + 25]!;
    if (stream) e.stream = streams[stream] ?? "stream-" + stream;
    const body = at + headerSize;
    if (data > 0) e.data = JSON.parse(decoder.decode(b.subarray(body, body + data)));
    if (body + data < at + size) e.bytes = b.slice(body + data, at + size);
    yieldEvent(e, size);
    at += size;
  }
}

/** fromJSON takes an event of the API. */
export function fromJSON(e: Event): LogEvent {
  const result: LogEvent = { seq: e.seq, time: e.time, kind: e.kind };
  if (e.turn) result.turn = e.turn;
  if (e.stream) result.stream = e.stream;
  if (e.data !== undefined) result.data = e.data;
  if (e.text !== undefined) result.bytes = new TextEncoder().encode(e.text);
  else if (e.base64 !== undefined) result.bytes = Uint8Array.from(atob(e.base64), c => c.charCodeAt(0));
  return result;
}

/** textOf is the output in an event, as text. */
export function textOf(e: LogEvent): string {
  return e.bytes ? decoder.decode(e.bytes) : "";
}
