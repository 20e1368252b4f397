import { ConnectionLost, NotFound } from "./errors.js";
import { Frames } from "./events.js";
import { type HTTP, type Query, Retry, TransportError } from "./http.js";
import type { Waiting } from "./run.js";
import type { Ask } from "./turns.js";
import type { AskList, Info } from "./types.js";

const longPollMs = 25_000;

/**
 * Yields the runs that a query selects, and then each that changes. A new connection gets
 * everything again; what did not change is passed over, and what was selected before and is
 * not any more is looked up.
 */
export async function* watch(http: HTTP, query: Query, options: Waiting): AsyncGenerator<Info, void, void> {
  const known = new Map<string, { text: string }>();
  const retry = new Retry(http.reconnectMs, options.signal);
  for (;;) {
    const frames = new Frames();
    const decoder = new TextDecoder();
    let came: Set<string> | undefined = new Set(); // until all runs are there
    try {
      const call = { query, accept: "text/event-stream", signal: options.signal };
      for await (const chunk of http.stream("/v1/watch", call)) {
        if (chunk === undefined) continue;
        for (const { name, data } of frames.feed(decoder.decode(chunk, { stream: true }))) {
          if (name === "run") {
            const info = data as Info;
            came?.add(info.id);
            const text = JSON.stringify(info);
            if (known.get(info.id)?.text === text) continue;
            known.set(info.id, { text });
            yield info;
          } else if (name === "sync" && came) {
            retry.reset();
            for (const [id, { text }] of [...known]) {
              if (came.has(id)) continue;
              known.delete(id);
              const last = await find(http, id);
              if (last && JSON.stringify(last) !== text) yield last;
            }
            came = undefined;
          }
        }
      }
    } catch (error) {
      if (!(error instanceof TransportError)) throw error;
      await retry.wait(error.cause);
      continue;
    }
    await retry.wait(new ConnectionLost("the server ended the stream"));
  }
}

/** Returns the description of a run, or undefined if it was deleted. */
async function find(http: HTTP, id: string): Promise<Info | undefined> {
  try {
    return await http.json<Info>("GET", `/v1/runs/${id}`);
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw error;
  }
}

/** Which asks to yield. */
export interface AskQuery extends Waiting {
  /** Go on with what runs ask from now on, without an end. */
  follow?: boolean;
  run?: string;
  kind?: string;
}

/** Yields the open asks, the oldest first, and with follow each that comes. */
export async function* asks(http: HTTP, options: AskQuery): AsyncGenerator<Ask, void, void> {
  const { follow, run, kind, signal } = options;
  let known = new Set<string>();
  for (let since: string | undefined; ; ) {
    const query = { run, kind, since, wait_ms: since === undefined ? undefined : longPollMs };
    const page = await http.json<AskList>("GET", "/v1/asks", { query, signal });
    for (const { run: id, seq, ask } of page.asks) {
      if (!known.has(`${id} ${seq}`)) yield { ...(ask as Ask), run: id, seq };
    }
    if (!follow) return;
    known = new Set(page.asks.map((ask) => `${ask.run} ${ask.seq}`));
    since = page.version;
  }
}
