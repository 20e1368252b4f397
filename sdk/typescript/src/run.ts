import { Ended, NotFound, RunFailed } from "./errors.js";
import { Cursor, flatten, joined } from "./events.js";
import { type Call, heartbeatMs, type HTTP, Retry, TransportError } from "./http.js";
import type { AnswerRequest, ApplyRequest, Change, ChangePage, ControlRequest, Event, EventPage, Excerpt, Hit, Info, Outcome, RunSearch } from "./types.js";

const longPollMs = 25_000;
const shownBytes = 4_000;

/** Options of calls that wait. Aborting one never stops the run. */
export interface Waiting {
  signal?: AbortSignal;
}

/** A handle to a run. It holds no state of the run: the log has it. */
export class Run {
  /** The standard input. What is written arrives once, in order. */
  readonly stdin: Stdin;

  constructor(
    readonly http: HTTP,
    /** The description of the run as it was when this program last heard of it. */
    public latest: Info,
  ) {
    this.stdin = new Stdin(this);
  }

  /** The id of the run. */
  get id(): string {
    return this.latest.id;
  }

  /** The path of the run in the API. */
  get path(): string {
    return `/v1/runs/${this.id}`;
  }

  /** Returns the description of the run as it is now. */
  async info(options: Waiting = {}): Promise<Info> {
    this.latest = await this.http.json<Info>("GET", this.path, { signal: options.signal });
    return this.latest;
  }

  /**
   * Yields every event after a cursor, history and live alike, until the log is complete.
   * Each comes once, in order, whatever happens to the connection. To go on later, pass the
   * `seq` of the last event as `after`.
   */
  events(options: { after?: number } & Waiting = {}): AsyncGenerator<Event, void, void> {
    return flatten(this.#batches(options));
  }

  /**
   * Returns a page of events after a cursor; `next` is the cursor of the next page. `waitMs` waits
   * for the first event if there is none.
   */
  async read(options: { after?: number; maxBytes?: number; waitMs?: number } & Waiting = {}): Promise<EventPage> {
    const query = { after: options.after ?? 0, max_bytes: options.maxBytes, wait_ms: options.waitMs };
    const page = await this.http.json<EventPage>("GET", `${this.path}/events`, { query, signal: options.signal });
    this.latest = page.info;
    return page;
  }

  async *#batches(options: { after?: number } & Waiting): AsyncGenerator<readonly Event[], void, void> {
    const cursor = new Cursor(options.after ?? 0);
    const retry = new Retry(this.http.reconnectMs, options.signal);
    while (!cursor.complete) {
      cursor.begin();
      let came = false;
      try {
        const query = { after: cursor.last, heartbeat_ms: heartbeatMs };
        const call = { query, accept: "application/x-ndjson", signal: options.signal };
        for await (const chunk of this.http.stream(`${this.path}/events`, call)) {
          if (chunk === undefined) {
            retry.reset();
            continue;
          }
          const events = cursor.feed(chunk);
          if (events.length > 0) {
            came = true;
            yield events;
          }
        }
      } catch (error) {
        if (cursor.gap && error instanceof NotFound) return; // the run was deleted, which the last event says
        if (!(error instanceof TransportError)) throw error;
        await retry.wait(error.cause);
        continue;
      }
      if (!came && !cursor.complete) {
        const info = await this.info(options);
        if (info.state === "closed" && info.last <= cursor.last) return;
      }
    }
  }

  /** Yields the output as it comes, of all streams or of those named, until the run ends. */
  async *stream(options: { streams?: readonly string[] } & Waiting = {}): AsyncGenerator<Uint8Array, void, void> {
    let taken = 0;
    const retry = new Retry(this.http.reconnectMs, options.signal);
    for (;;) {
      try {
        const query = { follow: true, skip_bytes: taken, stream: options.streams };
        const call = { query, accept: "application/octet-stream", signal: options.signal };
        for await (const chunk of this.http.stream(`${this.path}/output`, call)) {
          if (chunk === undefined) {
            retry.reset();
            continue;
          }
          taken += chunk.length;
          yield chunk;
        }
      } catch (error) {
        if (!(error instanceof TransportError)) throw error;
        await retry.wait(error.cause);
        continue;
      }
      if ((await this.info(options)).state === "closed") return;
    }
  }

  /** Waits for the end of the run and returns what it wrote. */
  async output(options: { streams?: readonly string[] } & Waiting = {}): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this.stream(options)) chunks.push(chunk);
    return joined(chunks);
  }

  /** Waits for the end of the run and returns what it wrote, as text. */
  async text(options: { streams?: readonly string[] } & Waiting = {}): Promise<string> {
    return new TextDecoder().decode(await this.output(options));
  }

  /** Returns the end of the output as it is now. */
  async tail(bytes = shownBytes): Promise<string> {
    const query = { tail_bytes: bytes, ansi: "strip" };
    return new TextDecoder().decode(await this.http.bytes("GET", `${this.path}/output`, { query, accept: "*/*" }));
  }

  /** Returns what matters of the output, within a budget of tokens. */
  transcript(tokens = 2000): Promise<Excerpt> {
    return this.http.json("GET", `${this.path}/transcript`, { query: { budget_tokens: tokens } });
  }

  /** Returns the lines of the output that contain a text or match a pattern. */
  async search(text: string, options: { regex?: boolean; limit?: number } = {}): Promise<Hit[]> {
    const query = { q: text, mode: options.regex ? "regex" : undefined, limit: options.limit };
    return (await this.http.json<RunSearch>("GET", `${this.path}/search`, { query })).hits;
  }

  /** Waits until the run has ended and its log is complete. */
  async wait(options: Waiting = {}): Promise<Outcome> {
    for (;;) {
      const query = { wait_ms: longPollMs, state: "closed" };
      this.latest = await this.http.json<Info>("GET", this.path, { query, signal: options.signal });
      if (this.latest.state === "closed") return outcomeOf(this.latest);
    }
  }

  /** Waits, and throws with the end of the output if the run did not exit with 0. */
  async check(options: Waiting = {}): Promise<Outcome> {
    const outcome = await this.wait(options);
    if (outcome.kind === "exited" && outcome.code === 0) return outcome;
    const what = this.latest.argv?.join(" ") ?? this.id;
    throw new RunFailed(`${what}: ${describe(outcome)}\n${await this.tail()}`.trimEnd());
  }

  /** Sends a control request, such as interrupt or stop. It is done once, however often it must be sent. */
  async control(op: string, fields: Partial<ControlRequest> = {}): Promise<void> {
    const json: ControlRequest = { op, id: newId(), ...fields };
    const call: Call = { json };
    if (op === "stop" || op === "kill") call.done = Ended;
    await this.http.json("POST", `${this.path}/control`, call);
  }

  /** Interrupts what runs now, as Ctrl-C does. */
  interrupt(): Promise<void> {
    return this.control("interrupt");
  }

  /** Sends a signal, such as SIGUSR1. */
  signal(name: string): Promise<void> {
    return this.control("signal", { signal: name });
  }

  /** Resizes the terminal of the run. */
  resize(rows: number, cols: number): Promise<void> {
    return this.control("resize", { size: { rows, cols } });
  }

  /** Ends the run and everything it started: SIGTERM, and SIGKILL after the grace time. */
  stop(): Promise<void> {
    return this.control("stop");
  }

  /** Ends the run and everything it started at once. */
  kill(): Promise<void> {
    return this.control("kill");
  }

  /**
   * Answers an ask. The first answer counts; another one throws `NotAsked`. `retype` is what
   * was typed again to allow what is dangerous.
   */
  async answer(ask: number, data: unknown, error?: string, retype?: string): Promise<void> {
    const said = error === undefined ? { data } : { error: { message: error } };
    const json: AnswerRequest = { id: newId(), ...said, ...(retype ? { retype } : {}) };
    await this.http.json("POST", `${this.path}/asks/${ask}`, { json });
  }

  /** Returns a large value that an event refers to. */
  blob(digest: string): Promise<Uint8Array> {
    return this.http.bytes("GET", `${this.path}/blobs/${digest}`, { accept: "*/*" });
  }

  /** Gives the run another name, which no other live run may have. */
  async rename(name: string): Promise<void> {
    this.latest = await this.http.json<Info>("PATCH", this.path, { json: { name } });
  }

  /** Returns what the run changed in its workspace, with the differences of texts. */
  async changes(): Promise<Change[]> {
    const all: Change[] = [];
    for (let after: string | undefined; ; after = all.at(-1)?.path) {
      const page = await this.http.json<ChangePage>("GET", `${this.path}/changes`, { query: { patch: true, after } });
      all.push(...page.changes);
      if (!page.more || page.changes.length === 0) return all;
    }
  }

  /**
   * Takes the changes of the run over into its directory, all or those of some paths, and returns
   * them. `dry` only checks. If one meets a change of another, none is made: it throws `Exists`.
   */
  async apply(paths: readonly string[] = [], options: { dry?: boolean } = {}): Promise<Change[]> {
    const json: ApplyRequest = paths.length > 0 ? { paths: [...paths] } : {};
    const path = `${this.path}/apply`;
    const { changes } = await this.http.json<ChangePage>("POST", path, { json: { ...json, dry: true }, waits: false });
    if (options.dry) return changes;
    // What was taken over is no change any more: a request that is repeated does not find it.
    const call: Call = { json, waits: false };
    if (paths.length > 0) call.done = NotFound;
    await this.http.json("POST", path, call);
    return changes;
  }

  /** Deletes the changes of the run, which must have ended. */
  async discard(): Promise<void> {
    await this.http.send("POST", `${this.path}/discard`, { done: NotFound, waits: false });
  }

  /** Deletes the run, which must have ended. */
  async delete(): Promise<void> {
    await this.http.send("DELETE", this.path, { done: NotFound });
  }

  toString(): string {
    const what = this.latest.argv?.join(" ") ?? this.latest.engine;
    return `${this.id} ${what}: ${this.latest.outcome ? describe(this.latest.outcome) : this.latest.state}`;
  }

  /** Returns the error of a turn that was not done when the run ended. */
  protected ended(turn: number): Ended {
    return new Ended({ status: 409, code: "ended", detail: `run ${this.id} ended before turn ${turn} was done` });
  }
}

/** The standard input of a run. */
export class Stdin {
  constructor(private readonly run: Run) {}

  /** Writes bytes or text. */
  write(data: Uint8Array | string, options: Waiting = {}): Promise<void> {
    return this.#send(typeof data === "string" ? new TextEncoder().encode(data) : data, {}, options);
  }

  /** Closes it: the program reads end of file. */
  close(options: Waiting = {}): Promise<void> {
    return this.#send(new Uint8Array(), { eof: true }, options);
  }

  async #send(body: Uint8Array, query: { eof?: boolean }, { signal }: Waiting): Promise<void> {
    await this.run.http.json("POST", `${this.run.path}/input`, { body, query: { ...query, id: newId() }, signal });
  }
}

/** Returns an id by which the server knows a request again. */
export function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(13)), (b) => b.toString(16).padStart(2, "0")).join("");
}

/** Returns how a run ended. */
export function outcomeOf(info: Info): Outcome {
  return info.outcome ?? { kind: "unknown", code: 0, reason: "the run has no outcome" };
}

/** Returns an outcome as a person reads it. */
export function describe(outcome: Outcome): string {
  let text = outcome.kind === "exited" ? `exited ${outcome.code}` : outcome.kind;
  if (outcome.signal) text += ` (${outcome.signal})`;
  return outcome.reason ? `${text}: ${outcome.reason}` : text;
}
