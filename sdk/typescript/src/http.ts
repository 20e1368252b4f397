import { ConnectionLost, ProblemError, problemError, TooMany, Unavailable } from "./errors.js";

/** Sends requests as `fetch` does; a server on a unix socket needs another one. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** Parameters of a query. Those that are undefined are left out. */
export type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

/** What a request may have. */
export interface Call {
  query?: Query;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as it is. */
  body?: Uint8Array;
  accept?: string;
  /** The error that says that it was done before: success, if an earlier attempt was cut. */
  done?: new (problem: never) => ProblemError;
  /** Whether to wait while the run is busy; by default it does. */
  waits?: boolean;
  signal?: AbortSignal | undefined;
}

/** A stream says something every 15 seconds, so that longer silence means a dead connection. */
export const heartbeatMs = 15_000;
const silenceMs = 3 * heartbeatMs;
const firstWaitMs = 50;
const longestWaitMs = 2_000;

/** A connection to a server that outlives cuts: a request is sent again. What must not be done twice has an id. */
export class HTTP {
  constructor(
    readonly url: string,
    readonly token: string | undefined,
    readonly reconnectMs: number,
    readonly fetch: Fetch,
  ) {}

  /** Sends a request and returns the answer, or throws what the server says. */
  async send(method: string, path: string, call: Call = {}): Promise<Response> {
    const retry = new Retry(this.reconnectMs, call.signal);
    for (let cut = false; ; ) {
      try {
        return await this.#once(method, path, call);
      } catch (error) {
        call.signal?.throwIfAborted();
        if (cut && call.done && error instanceof call.done) return new Response(null, { status: 204 });
        cut ||= !(error instanceof ProblemError);
        if (error instanceof ProblemError && (!comesBack(error) || (call.waits === false && error.code === "busy"))) throw error;
        await retry.wait(error);
      }
    }
  }

  async #once(method: string, path: string, call: Call): Promise<Response> {
    const headers: Record<string, string> = { Accept: call.accept ?? "application/json" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    const init: RequestInit = { method, headers, signal: call.signal ?? null };
    if (call.json !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(call.json);
    } else if (call.body) {
      headers["Content-Type"] = "application/octet-stream";
      init.body = call.body as Uint8Array<ArrayBuffer>;
    }
    const answer = await this.fetch(this.url + path + encodeQuery(call.query), init);
    if (answer.status >= 400) throw problemError(answer.status, await answer.text());
    return answer;
  }

  /** Returns the JSON of an answer. */
  async json<T>(method: string, path: string, call: Call = {}): Promise<T> {
    const text = new TextDecoder().decode(await this.bytes(method, path, call));
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }

  /** Returns the body of an answer, all of it. */
  async bytes(method: string, path: string, call: Call = {}): Promise<Uint8Array> {
    const retry = new Retry(this.reconnectMs, call.signal);
    for (;;) {
      const answer = await this.send(method, path, call);
      try {
        return new Uint8Array(await answer.arrayBuffer());
      } catch (error) {
        call.signal?.throwIfAborted();
        await retry.wait(error);
      }
    }
  }

  /**
   * Yields the chunks of a stream, and undefined once when it has begun. A stream that is
   * silent for too long, or cut, throws a `TransportError`.
   */
  async *stream(path: string, call: Call): AsyncGenerator<Uint8Array | undefined, void, void> {
    const abort = new AbortController();
    const cancel = () => abort.abort(call.signal?.reason);
    call.signal?.throwIfAborted();
    call.signal?.addEventListener("abort", cancel);
    try {
      let answer: Response;
      try {
        answer = await this.#once("GET", path, { ...call, signal: abort.signal });
      } catch (error) {
        call.signal?.throwIfAborted();
        throw error instanceof ProblemError && !comesBack(error) ? error : new TransportError(error);
      }
      yield undefined;
      if (!answer.body) return;
      const reader = answer.body.getReader();
      for (;;) {
        const timer = setTimeout(() => abort.abort(new Error("the stream is silent")), silenceMs);
        let chunk: ReadableStreamReadResult<Uint8Array>;
        try {
          chunk = await reader.read();
        } catch (error) {
          call.signal?.throwIfAborted();
          throw new TransportError(error);
        } finally {
          clearTimeout(timer);
        }
        if (chunk.done) return;
        yield chunk.value;
      }
    } finally {
      call.signal?.removeEventListener("abort", cancel);
      abort.abort();
    }
  }
}

/** The connection was lost; the cursor is not. */
export class TransportError extends Error {
  constructor(override readonly cause: unknown) {
    super(String(cause));
  }
}

/** Reports whether the server wants the request again later. */
function comesBack(error: ProblemError): boolean {
  return (error instanceof Unavailable || error instanceof TooMany) && (error.problem.retry_after_ms ?? 0) > 0;
}

/** Waits between attempts, longer each time, until the time is up. */
export class Retry {
  #delay = 0; // most cuts are short
  #since: number | undefined;

  constructor(
    readonly limitMs: number,
    readonly signal?: AbortSignal | undefined,
  ) {}

  /** Begins anew: the server has answered. */
  reset(): void {
    this.#delay = 0;
    this.#since = undefined;
  }

  /** Waits before the next attempt, or throws if the time is up. */
  async wait(error: unknown): Promise<void> {
    const now = performance.now();
    this.#since ??= now;
    if (now + this.#delay > this.#since + this.limitMs) {
      throw error instanceof ProblemError ? error : new ConnectionLost(`the server cannot be reached: ${error}`);
    }
    await new Promise((resolve) => setTimeout(resolve, this.#delay));
    this.signal?.throwIfAborted();
    this.#delay = Math.min(Math.max(2 * this.#delay, firstWaitMs), longestWaitMs);
  }
}

function encodeQuery(query: Query = {}): string {
  const list = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    if (Array.isArray(value)) for (const v of value as string[]) list.append(name, v);
    else list.append(name, value === true ? "1" : value === false ? "0" : String(value));
  }
  const text = list.toString();
  return text === "" ? "" : `?${text}`;
}
