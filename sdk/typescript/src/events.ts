import { LogError } from "./errors.js";
import type { Event } from "./types.js";

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const newline = 10;

/** Returns parts as one. */
export function joined(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Returns bytes in base64. */
export function base64(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
}

/** Returns the bytes of an output event. */
export function bytesOf(event: Event): Uint8Array {
  if (event.text !== undefined) return encoder.encode(event.text);
  return Uint8Array.from(atob(event.base64 ?? ""), (c) => c.charCodeAt(0));
}

/** Returns the bytes of an output event as text. */
export function textOf(event: Event): string {
  return event.text ?? decoder.decode(bytesOf(event));
}

/**
 * Takes the chunks of a stream of events and gives out each event once, in order. It
 * outlives the connections that the chunks come from: `last` is where the next one begins.
 */
export class Cursor {
  complete = false;
  /** Whether the last event says that events are gone. */
  gap = false;
  #rest: Uint8Array[] = []; // parts of a line whose end has not come

  constructor(public last: number) {}

  /** Forgets the unfinished line of a connection that was cut. */
  begin(): void {
    this.#rest = [];
  }

  /** Returns the lines that a chunk completes. Whole lines are decoded where they are. */
  #lines(chunk: Uint8Array): string {
    const end = chunk.lastIndexOf(newline);
    if (end < 0) {
      this.#rest.push(chunk);
      return "";
    }
    let from = 0;
    let text = "";
    if (this.#rest.length > 0) {
      from = chunk.indexOf(newline) + 1;
      text = decoder.decode(joined([...this.#rest, chunk.subarray(0, from)]));
    }
    if (from < end) text += decoder.decode(chunk.subarray(from, end));
    this.#rest = end + 1 < chunk.length ? [chunk.slice(end + 1)] : [];
    return text;
  }

  /** Returns the events that a chunk completes. */
  feed(chunk: Uint8Array): Event[] {
    let text = this.#lines(chunk);
    if (text.endsWith("\n")) text = text.slice(0, -1);
    if (text.startsWith("\n") || text.endsWith("\n") || text.includes("\n\n")) {
      text = text.split("\n").filter((line) => line !== "").join("\n"); // the server was silent
    }
    if (text === "") return [];
    const events: Event[] = [];
    // One call of the parser for all lines is faster than one for each.
    for (const event of JSON.parse(`[${text.replaceAll("\n", ",")}]`) as Event[]) {
      if (event.seq !== this.last + 1 && !this.#jumps(event)) continue;
      if (event.seq > 0) this.last = event.seq;
      if (event.kind === "closed" || event.seq === 0) this.complete = true;
      this.gap = event.kind === "truncated";
      events.push(event);
    }
    return events;
  }

  /** Reports whether to take an event that is not the next, and refuses what cannot be. */
  #jumps(event: Event): boolean {
    if (event.seq === 0 || (event.kind === "truncated" && event.seq > this.last)) return true;
    if (event.seq <= this.last) return false;
    throw new LogError(`event ${event.seq} of run ${event.run} came after event ${this.last}`);
  }
}

/**
 * Yields the elements of batches. It is what an async generator would be that yields each of
 * them, but takes a fraction of the time for elements that are there.
 */
export function flatten<T>(batches: AsyncGenerator<readonly T[], void, void>): AsyncGenerator<T, void, void> {
  let batch: readonly T[] = [];
  let at = 0;
  let busy: Promise<unknown> | undefined; // the last call that had to wait
  const take = async (): Promise<IteratorResult<T, void>> => {
    while (at >= batch.length) {
      const next = await batches.next();
      if (next.done) return { done: true, value: undefined };
      batch = next.value;
      at = 0;
    }
    return { done: false, value: batch[at++] as T };
  };
  const wait = <R>(call: () => Promise<R>): Promise<R> => {
    const mine: Promise<R> = busy === undefined ? call() : busy.then(call, call);
    busy = mine;
    const done = (): void => {
      if (busy === mine) busy = undefined;
    };
    mine.then(done, done);
    return mine;
  };
  const end = async (): Promise<IteratorResult<T, void>> => {
    batch = [];
    await batches.return();
    return { done: true, value: undefined };
  };
  return {
    next: () =>
      busy === undefined && at < batch.length
        ? Promise.resolve({ done: false as const, value: batch[at++] as T })
        : wait(take),
    return: () => wait(end),
    throw: (error: unknown) =>
      wait(async () => {
        await end();
        throw error;
      }),
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

/** Takes the text of a stream of server-sent events and gives out whole ones. */
export class Frames {
  #rest = "";

  /** Returns the events that a chunk completes. */
  feed(chunk: string): { name: string; data: unknown }[] {
    const blocks = (this.#rest + chunk).split("\n\n");
    this.#rest = blocks.pop() ?? "";
    const frames: { name: string; data: unknown }[] = [];
    for (const block of blocks) {
      let name = "message";
      let data = "";
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (data !== "") frames.push({ name, data: JSON.parse(data) }); // otherwise it is a comment
    }
    return frames;
  }
}
