import { type Fetch, HTTP, type Query } from "./http.js";
import { newId, Run, type Waiting } from "./run.js";
import { Tools } from "./tools.js";
import { Agent, type Answerer, type Ask, choice, Kernel, retyped, type Tool } from "./turns.js";
import type { Info, RunCounts, RunList, SearchPage, SearchPageHit, ServerInfo, SpecRequest } from "./types.js";
import { type AskQuery, asks, watch } from "./watch.js";

/** Where a server is, and how to talk to it. */
export interface Options {
  /** The URL of the server; by default http://127.0.0.1:7766. */
  url?: string;
  token?: string;
  /** How long to try to reach a server that was lost; 30 seconds by default. */
  reconnectMs?: number;
  /** Sends requests, in place of the global `fetch`. */
  fetch?: Fetch;
  /** What every start has unless it says otherwise. */
  defaults?: () => Partial<SpecRequest>;
}

/** What a start may say beside what it runs. */
export type StartOptions = Omit<SpecRequest, "argv" | "engine" | "config">;

/** Which runs, and in which order. */
export interface RunQuery {
  /** Those that are not closed. */
  live?: boolean;
  /** Those with open asks. */
  waiting?: boolean;
  state?: "queued" | "running" | "exited" | "closed";
  engine?: string;
  /** Those that ended this way. */
  outcome?: "exited" | "failed" | "unknown";
  name?: string;
  /** Those whose name matches a pattern, such as `build-*`. */
  nameGlob?: string;
  /** Those whose id begins so. */
  prefix?: string;
  /** Those with a label, or with all of several: NAME:VALUE, or NAME for any value. */
  label?: string | readonly string[];
  /** Those that are not closed, or ended since then. */
  since?: Date;
  /** Those that were created before then. */
  before?: Date;
  /** The oldest first instead of the newest. */
  oldest?: boolean;
}

/** What to find in the output of runs. */
export interface SearchQuery extends RunQuery {
  /** The text is a regular expression. */
  regex?: boolean;
  ignoreCase?: boolean;
  /** The ids of the runs to look at. */
  runs?: readonly string[];
}

/** A Spool server. Connections that are lost are made again. */
export class Spool {
  readonly http: HTTP;
  /** Returns what every start has unless it says otherwise. */
  readonly defaults: () => Partial<SpecRequest>;
  /** Tools for models, those of the Model Context Protocol. */
  readonly tools: Tools;

  constructor(options: Options = {}) {
    const url = (options.url ?? "http://127.0.0.1:7766").replace(/\/$/, "");
    const send: Fetch = options.fetch ?? ((address, init) => fetch(address, init));
    this.http = new HTTP(url, options.token, options.reconnectMs ?? 30_000, send);
    this.defaults = options.defaults ?? (() => ({}));
    this.tools = new Tools(this);
  }

  /** Describes the server, and who asks. */
  server(): Promise<ServerInfo> {
    return this.http.json("GET", "/v1/server");
  }

  /** Starts what a spec says. It starts once, however often the request must be sent. */
  start(spec: SpecRequest): Promise<Info> {
    const json: SpecRequest = { id: newId(), ...this.defaults(), ...spec };
    if (!json.env) json.env_policy ??= {};
    return this.http.json("POST", "/v1/runs", { json });
  }

  /** Starts a command and returns at once. A string is a line for `sh -c`. */
  async run(command: readonly string[] | string, options: StartOptions & { timeoutMs?: number } = {}): Promise<Run> {
    const { timeoutMs, ...spec } = options;
    const argv = typeof command === "string" ? ["sh", "-c", command] : [...command];
    const limits = timeoutMs ? { limits: { ...spec.limits, wall_ms: timeoutMs } } : {};
    return new Run(this.http, await this.start({ argv, ...spec, ...limits }));
  }

  /**
   * Starts a Python interpreter that keeps its state. `tools` are functions that cells call as
   * `tool.NAME(key=value)`; `answer` gets what `input()` asks, and returns the line.
   */
  async kernel(
    options: StartOptions & { config?: object; tools?: Record<string, Tool>; answer?: Answerer } = {},
  ): Promise<Kernel> {
    const { tools = {}, answer, config, ...spec } = options;
    const names = Object.keys(tools);
    const all = { ...(names.length > 0 ? { tools: names } : {}), ...(answer ? { input: "ask" } : {}), ...config };
    return new Kernel(this.http, await this.start({ engine: "kernel", config: all, ...spec }), answer, tools);
  }

  /** Starts Python in a sandbox that reaches nothing but what is configured. */
  async box(
    options: StartOptions & { config?: object; tools?: Record<string, Tool>; answer?: Answerer } = {},
  ): Promise<Kernel> {
    const { tools = {}, answer, config = {}, ...spec } = options;
    const info = await this.start({ engine: "sandbox", config, env: {}, cwd: "/", ...spec });
    return new Kernel(this.http, info, answer, tools);
  }

  /**
   * Starts a coding agent, such as codex or claude. `approve` gets each question of the agent
   * and returns true, false, an option, or undefined to leave it to somebody else.
   */
  async agent(agent: string, options: StartOptions & { config?: object; approve?: Answerer } = {}): Promise<Agent> {
    const { approve, config, ...spec } = options;
    const info = await this.start({ engine: "agent", config: { agent, ...config }, ...spec });
    return new Agent(this.http, info, approve, {});
  }

  /** Returns the run with an id. */
  async get(id: string): Promise<Run> {
    return this.#handle(await this.http.json<Info>("GET", `/v1/runs/${encodeURIComponent(id)}`));
  }

  /** Returns the run with a name, or with an id that begins so. */
  async find(name: string): Promise<Run> {
    return this.#handle(await this.http.json<Info>("GET", `/v1/find/${encodeURIComponent(name)}`)); // it redirects
  }

  /** Yields runs, newest first. `pageSize` is how many to ask the server for at a time. */
  async *runs(query: RunQuery & { pageSize?: number } = {}): AsyncGenerator<Run, void, void> {
    const { pageSize: limit, ...selects } = query;
    for (let cursor: string | undefined; ; ) {
      const page: RunList = await this.http.json("GET", "/v1/runs", { query: { ...selected(selects), limit, cursor } });
      for (const info of page.runs) yield this.#handle(info);
      cursor = page.next;
      if (!cursor) return;
    }
  }

  /** Returns how many runs there are in each state. */
  async count(query: RunQuery = {}): Promise<Record<string, number>> {
    return (await this.http.json<RunCounts>("GET", "/v1/count", { query: selected(query) })).counts;
  }

  /**
   * Yields the lines of output that contain a text or match a pattern, of the newest run first.
   * `pageSize` is how many to ask the server for at a time.
   */
  async *search(text: string, query: SearchQuery & { pageSize?: number } = {}): AsyncGenerator<SearchPageHit, void, void> {
    const { regex, ignoreCase: ignore_case, runs: run, pageSize: limit, ...selects } = query;
    const fixed = { ...selected(selects), q: text, mode: regex ? "regex" : undefined, ignore_case, run, limit };
    for (let cursor: string | undefined; ; ) {
      const page: SearchPage = await this.http.json("GET", "/v1/search", { query: { ...fixed, cursor } });
      yield* page.hits;
      cursor = page.next;
      if (!cursor) return;
    }
  }

  /**
   * Yields runs, and then each that changes, with its description in `latest`, without an end.
   * A run that the query does not select any more comes a last time. Changes that follow each
   * other closely, or that happen while the connection is cut, are one.
   */
  async *watch(query: RunQuery & Waiting = {}): AsyncGenerator<Run, void, void> {
    const { signal, ...selects } = query;
    for await (const info of watch(this.http, selected(selects), signal ? { signal } : {})) yield this.#handle(info);
  }

  /** Yields what runs ask and nobody has answered, the oldest first. */
  asks(query: AskQuery = {}): AsyncGenerator<Ask, void, void> {
    return asks(this.http, query);
  }

  /** Answers an ask: true, `Retyped` and false allow and deny. The first answer counts; another one throws `NotAsked`. */
  async answer(ask: Ask, data: unknown, error?: string): Promise<void> {
    await (await this.get(ask.run)).answer(ask.seq, choice(ask, data), error, retyped(data));
  }

  #handle(info: Info): Run {
    if (info.engine === "kernel" || info.engine === "sandbox") return new Kernel(this.http, info, undefined, {});
    if (info.engine === "agent") return new Agent(this.http, info, undefined, {});
    return new Run(this.http, info);
  }
}

/** Returns a query as the API takes it. */
function selected(query: RunQuery): Query {
  const { nameGlob: name_glob, since, before, ...same } = query;
  return { ...same, name_glob, since: since?.toISOString(), before: before?.toISOString() };
}
