import { NotAsked, RunFailed } from "./errors.js";
import { base64, textOf } from "./events.js";
import type { HTTP } from "./http.js";
import { newId, Run, type Waiting } from "./run.js";
import type { Done, Event, Info, TurnInfo, TurnRequest } from "./types.js";

/** A question of a run that waits for an answer. */
export interface Ask {
  run: string;
  seq: number;
  kind: string;
  name?: string;
  prompt?: string;
  secret?: boolean;
  data?: unknown;
  /** Whether it must be typed again to be allowed, because the policy of the run calls it dangerous; see `Retyped`. */
  retype?: boolean;
  options?: { id: string; label?: string; kind?: string }[];
}

/** An answer that allows what is dangerous, with the text that was typed again: the command of the ask, or its name. */
export class Retyped {
  constructor(
    readonly text: string,
    readonly data: unknown = true,
  ) {}
}

/** Answers an ask: with data, true or false to allow or deny, `Retyped`, or undefined to leave it open. */
export type Answerer = (ask: Ask) => unknown;

/** A function that cells may call. It gets what the cell passed by name. */
export type Tool = (args: Record<string, unknown>) => unknown;

/** An image that a cell displayed. */
export interface Image {
  mime: string;
  data: Uint8Array;
}

/** What a cell raised. */
export interface CellError {
  name: string;
  message: string;
  traceback?: string;
}

const images = ["image/png", "image/jpeg", "image/svg+xml", "image/gif", "image/webp"];
const words = { allow: ["allow", "approve", "accept", "yes"], deny: ["deny", "reject", "decline", "no"] };

/** What a cell did: its output, its result, what it displayed and raised. */
export class Cell {
  outcome = "running";
  stdout = "";
  stderr = "";
  result: string | undefined;
  readonly displays: Record<string, unknown>[] = [];
  readonly images: Image[] = [];
  error: CellError | undefined;
  done: Done | undefined;

  constructor(
    readonly turn: number,
    readonly code: string,
  ) {}

  /** Whether the cell ended without an error. */
  get ok(): boolean {
    return this.outcome === "ok";
  }

  /** Output, result and error, as a person reads them. */
  get text(): string {
    const error = this.error && (this.error.traceback ?? `${this.error.name}: ${this.error.message}`);
    return [this.stdout, this.stderr, this.result, error]
      .filter((part) => part)
      .map((part) => part?.trimEnd())
      .join("\n");
  }

  /** Returns the cell, or throws `RunFailed` if it did not end well. */
  check(): this {
    if (this.ok) return this;
    const error = this.error && `${this.error.traceback ?? ""}\n${this.error.name}: ${this.error.message}`;
    throw new RunFailed(error?.trim() ?? this.done?.error ?? this.outcome);
  }
}

/** What an agent answered to a prompt, and what it cost. */
export interface Answer {
  turn: number;
  ok: boolean;
  outcome: string;
  text: string;
  usage: unknown;
  actions: Record<string, unknown>[];
  done: Done;
}

/** A cell or a prompt that was accepted. */
export class Turn {
  constructor(
    readonly run: Run,
    readonly seq: number,
  ) {}

  /** Yields the events of the turn until it is done, or until the run ends. */
  async *events(options: Waiting = {}): AsyncGenerator<Event, void, void> {
    for await (const event of this.run.events({ ...options, after: this.seq })) {
      const ended = event.kind === "exited" || event.kind === "failed";
      if (event.turn !== this.seq && !ended) continue;
      yield event;
      if (ended || event.kind === "done") return;
    }
  }

  /** Asks the turn to end; stronger means follow. */
  interrupt(): Promise<void> {
    return this.run.control("interrupt", { turn: this.seq });
  }
}

/** A run that takes turns, and asks while it does. */
export class TurnRun extends Run {
  constructor(
    http: HTTP,
    info: Info,
    private readonly answerer: Answerer | undefined,
    private readonly tools: Record<string, Tool>,
  ) {
    super(http, info);
  }

  /** Begins a turn. It is accepted once, however often the request must be sent. */
  protected async begin(request: TurnRequest): Promise<Turn> {
    const json = { id: newId(), ...request };
    const turn = await this.http.json<TurnInfo>("POST", `${this.path}/turns`, { json });
    return new Turn(this, turn.seq);
  }

  /** Answers an ask, if there is something that answers it. */
  protected async consider(event: Event): Promise<void> {
    const ask = { ...(event.data as Ask & { answer?: unknown }), run: this.id, seq: event.seq };
    if (ask.answer !== undefined) return; // the policy of the run has
    try {
      const tool = ask.kind === "tool" ? this.tools[ask.name ?? ""] : undefined;
      if (tool) return await this.#call(ask, tool);
      if (!this.answerer || ask.kind === "tool") return;
      const said = await this.answerer(ask);
      const data = choice(ask, said);
      if (data !== undefined && data !== null) await this.answer(ask.seq, data, undefined, retyped(said));
    } catch (error) {
      if (!(error instanceof NotAsked)) throw error; // else somebody was faster, or the turn has ended
    }
  }

  async #call(ask: Ask, tool: Tool): Promise<void> {
    let value: unknown;
    try {
      value = await tool((ask.data ?? {}) as Record<string, unknown>);
    } catch (error) {
      await this.answer(ask.seq, undefined, String(error)); // the cell gets it
      return;
    }
    await this.answer(ask.seq, value ?? null);
  }
}

/** Returns what to answer: for true and false the option that allows or denies, if there are options. */
export function choice(ask: Ask, data: unknown): unknown {
  if (data instanceof Retyped) return choice(ask, data.data);
  return typeof data === "boolean" && ask.options ? option(ask, data ? "allow" : "deny") : data;
}

/** Returns what was typed again with an answer. */
export function retyped(data: unknown): string | undefined {
  return data instanceof Retyped ? data.text : undefined;
}

function option(ask: Ask, kind: "allow" | "deny"): string | undefined {
  for (const word of words[kind]) {
    const found = ask.options?.find((o) => o.id.startsWith(word));
    if (found) return found.id;
  }
  return undefined;
}

/** A Python interpreter that keeps its state from one cell to the next. */
export class Kernel extends TurnRun {
  /** Sends a cell and returns at once; cells run one after the other. */
  submit(code: string, options: { timeoutMs?: number } = {}): Promise<Turn> {
    return this.begin({ cell: { code, ...(options.timeoutMs ? { timeout_ms: options.timeoutMs } : {}) } });
  }

  /** Runs a cell and returns what it did. `onOutput` gets the output as it comes. */
  async exec(
    code: string,
    options: { timeoutMs?: number; onOutput?: (text: string) => void } & Waiting = {},
  ): Promise<Cell> {
    const turn = await this.submit(code, options);
    const cell = new Cell(turn.seq, code);
    for await (const event of turn.events(options.signal ? { signal: options.signal } : {})) {
      switch (event.kind) {
        case "output":
          if (event.stream === "stderr") cell.stderr += textOf(event);
          else cell.stdout += textOf(event);
          options.onOutput?.(textOf(event));
          break;
        case "result":
        case "display":
          await this.#show(cell, event);
          break;
        case "exception":
          cell.error = event.data as CellError;
          break;
        case "ask":
          await this.consider(event);
          break;
        case "done":
          cell.done = event.data as Done;
          cell.outcome = cell.done.outcome;
          break;
      }
    }
    if (!cell.done) throw this.ended(turn.seq);
    return cell;
  }

  async #show(cell: Cell, event: Event): Promise<void> {
    const forms = event.data as Record<string, unknown>;
    cell.displays.push(forms);
    if (event.kind === "result") {
      const form = forms["text/plain"];
      const bytes = await this.#large(form);
      cell.result = bytes ? new TextDecoder().decode(bytes) : form === undefined ? undefined : String(form);
    }
    const mime = images.find((name) => name in forms);
    if (!mime) return;
    const form = forms[mime];
    const inline = mime === "image/svg+xml" ? new TextEncoder().encode(String(form)) : undefined;
    const data = (await this.#large(form)) ?? inline ?? Uint8Array.from(atob(String(form).replace(/\s/g, "")), (c) => c.charCodeAt(0));
    cell.images.push({ mime, data });
  }

  /** Returns a form that is not in the log because it is large. */
  async #large(form: unknown): Promise<Uint8Array | undefined> {
    return typeof form === "object" && form !== null && "blob" in form ? this.blob(String(form.blob)) : undefined;
  }

  /** Begins with a new interpreter. */
  restart(): Promise<void> {
    return this.control("restart");
  }
}

/** A coding agent. */
export class Agent extends TurnRun {
  /** Sends a prompt and returns at once. The agent is shown the images: PNG, JPEG, GIF or WebP. */
  submit(prompt: string, options: { images?: Image[]; timeoutMs?: number } = {}): Promise<Turn> {
    return this.begin({
      prompt: {
        text: prompt,
        ...(options.images?.length ? { images: options.images.map(({ mime, data }) => ({ mime, base64: base64(data) })) } : {}),
        ...(options.timeoutMs ? { timeout_ms: options.timeoutMs } : {}),
      },
    });
  }

  /** Gives the agent a prompt and returns its answer. `onEvent` gets each event as it comes. */
  async prompt(
    prompt: string,
    options: { images?: Image[]; timeoutMs?: number; onEvent?: (event: Event) => void } & Waiting = {},
  ): Promise<Answer> {
    const turn = await this.submit(prompt, options);
    const actions = new Map<string, Record<string, unknown>>();
    for await (const event of turn.events(options.signal ? { signal: options.signal } : {})) {
      options.onEvent?.(event);
      if (event.kind === "ask") await this.consider(event);
      if (event.kind === "action") {
        const action = event.data as Record<string, unknown>;
        const id = String(action.id ?? event.seq);
        actions.set(id, { ...actions.get(id), ...action });
      }
      if (event.kind === "done") {
        const done = event.data as Done;
        return {
          turn: turn.seq,
          ok: done.outcome === "ok",
          outcome: done.outcome,
          text: done.answer ?? "",
          usage: done.usage,
          actions: [...actions.values()],
          done,
        };
      }
    }
    throw this.ended(turn.seq);
  }
}
