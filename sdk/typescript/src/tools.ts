import type { Spool } from "./client.js";
import { ProblemError } from "./errors.js";
import { base64, Frames } from "./events.js";
import { newId } from "./run.js";
import { toolList } from "./tool_list.js";
import type { Image, Kernel } from "./turns.js";

/** What a model is told about a tool. */
export interface ToolSchema {
  readonly name: string;
  readonly description: string;
  readonly parameters: {
    readonly type: "object";
    readonly properties: Readonly<Record<string, object>>;
    readonly required?: readonly string[];
    readonly additionalProperties: boolean;
  };
}

/** Which tools a model gets, and what their calls have that it does not say. */
export interface ToolOptions {
  /** The tools to offer; all by default. */
  names?: readonly string[];
  /** Where commands start; with a local server the directory of this program by default. */
  cwd?: string;
  /**
   * The variables of commands; with a local server by default those of this program whose
   * names do not look like secrets.
   */
  env?: Readonly<Record<string, string>>;
  /** The interpreter of the tool python. */
  kernel?: Kernel;
  /** Bounds the characters of a result. */
  budget?: number;
}

const secret = /KEY|SECRET|TOKEN|PASSW|CREDENTIAL/i;
const sessionIdleMs = 3_600_000;

type Arguments = Record<string, unknown>;
type Part = { type: string; text: string; mimeType: string; data: string };
type Message = {
  result?: { content?: Part[]; structuredContent?: Arguments; isError?: boolean };
  error?: { message: string };
};

/**
 * What a tool returned, for a model to read. `data` is the same for a program, such as `run`
 * and the cursor `next`; a result with images has none.
 */
export class ToolResult {
  constructor(
    readonly text: string,
    readonly isError = false,
    readonly images: readonly Image[] = [],
    readonly data: Arguments | undefined = undefined,
  ) {}

  /** Returns the message that answers a call of a tool in a chat of OpenAI, which takes no images. */
  asOpenAI(call: string): { role: "tool"; tool_call_id: string; content: string } {
    return { role: "tool", tool_call_id: call, content: this.text };
  }

  /** Returns the block that answers a use of a tool in a message of Anthropic, with the images. */
  asAnthropic(use: string): { type: "tool_result"; tool_use_id: string; is_error: boolean; content: object[] } {
    const images = this.images.map(({ mime, data }) => ({
      type: "image",
      source: { type: "base64", media_type: mime, data: base64(data) },
    }));
    const content = [{ type: "text", text: this.text }, ...images];
    return { type: "tool_result", tool_use_id: use, is_error: this.isError, content };
  }

  toString(): string {
    return this.text;
  }
}

/** A few tools with which a model runs commands and Python, and reads what they wrote. */
export class Tools {
  /** What a model is told about the tools. */
  readonly list: readonly ToolSchema[];
  readonly #sessions = new Map<string, Promise<Kernel>>();

  constructor(
    private readonly spool: Spool,
    private readonly options: ToolOptions = {},
  ) {
    const unknown = options.names?.find((name) => !toolList.some((tool) => tool.name === name));
    if (unknown !== undefined) throw new TypeError(`there is no tool ${unknown}`);
    this.list = toolList.filter((tool) => options.names?.includes(tool.name) ?? true);
  }

  /** Returns the tools as OpenAI's chat completions take them. */
  asOpenAI(): { type: "function"; function: ToolSchema }[] {
    return this.list.map((tool) => ({ type: "function", function: tool }));
  }

  /** Returns the tools as Anthropic's messages take them. */
  asAnthropic(): { name: string; description: string; input_schema: ToolSchema["parameters"] }[] {
    return this.list.map(({ name, description, parameters }) => ({ name, description, input_schema: parameters }));
  }

  /** Returns each tool as a function of its arguments, for frameworks that take functions. */
  functions(): Record<string, (args: object) => Promise<string>> {
    return Object.fromEntries(this.list.map(({ name }) => [name, async (args) => (await this.call(name, args)).text]));
  }

  /**
   * Calls a tool with the arguments that a model gave, as JSON or decoded. What the model did
   * wrong, and what did not work, is in the result, with `isError`: the model reads it. A call that
   * is cut is sent again and done once. If the server does not come back, it throws
   * `ConnectionLost`; the run goes on.
   */
  async call(name: string, args: object | string = {}): Promise<ToolResult> {
    const tool = this.list.find((t) => t.name === name);
    if (!tool) return new ToolResult(`there is no tool ${name}: use ${this.list.map((t) => t.name).join(", ")}`, true);
    let given: Arguments;
    try {
      given = readArguments(args);
    } catch (error) {
      return new ToolResult(`the arguments are no JSON object: ${error}`, true);
    }
    await this.#complete(tool, given);
    const json = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: given } };
    const accept = "application/json, text/event-stream";
    return resultOf(await this.spool.http.bytes("POST", "/mcp", { json, accept }));
  }

  /** Stops the interpreters that the tools started. Commands go on. */
  async close(): Promise<void> {
    const kernels = await Promise.all(this.#sessions.values());
    this.#sessions.clear();
    await Promise.all(kernels.map((kernel) => kernel.stop()));
  }

  /** Adds what the model did not say, or must not decide. */
  async #complete(tool: ToolSchema, given: Arguments): Promise<void> {
    if ("id" in tool.parameters.properties) given.id ??= newId(); // so that it is done once
    const { budget } = this.options;
    if (budget !== undefined && "budget" in tool.parameters.properties) {
      const asked = given.budget ?? budget;
      given.budget = typeof asked === "number" ? Math.min(asked, budget) : asked;
    }
    const { cwd, env } = this.#place();
    const starts = tool.name === "run_command" || (tool.name === "ask_agent" && !("run" in given));
    if (starts && cwd !== undefined && typeof (given.cwd ?? "") === "string") {
      given.cwd = join(cwd, String(given.cwd ?? ""));
    }
    if (tool.name === "run_command") {
      if (env && typeof (given.env ?? {}) === "object") given.env = { ...env, ...(given.env as object) };
    } else if (tool.name === "python" && given.isolated !== true) {
      const session = await this.#session(String(given.session ?? "default"));
      if (session !== undefined) given.session = session;
    } else if (tool.name === "send_input" && given.after === undefined && typeof given.run === "string") {
      // A call that is repeated shows what the first one would have.
      try {
        given.after = (await this.spool.find(given.run)).latest.last;
      } catch (error) {
        if (!(error instanceof ProblemError)) throw error; // which the model reads
      }
    }
  }

  /** Returns where commands start, and with which variables. */
  #place(): { cwd?: string; env?: Record<string, string> } {
    const { cwd, env } = this.spool.defaults();
    const open = env && Object.fromEntries(Object.entries(env).filter(([name]) => !secret.test(name)));
    const { options } = this;
    const dir = options.cwd === undefined ? cwd : cwd === undefined ? options.cwd : join(cwd, options.cwd);
    const variables = options.env ?? open;
    return { ...(dir === undefined ? {} : { cwd: dir }), ...(variables ? { env: { ...variables } } : {}) };
  }

  /** Returns the interpreter of a session, started if need be, or undefined if the server has it. */
  async #session(name: string): Promise<string | undefined> {
    if (this.options.kernel && name === "default") return this.options.kernel.id;
    const place = this.#place();
    if (place.cwd === undefined && place.env === undefined) return undefined;
    const known = this.#sessions.get(name);
    if (known && (await (await known).info()).state === "running") return (await known).id;
    if (this.#sessions.get(name) === known) {
      const config = { input: "ask" };
      const started = this.spool.kernel({ ...place, config, limits: { idle_ms: sessionIdleMs } });
      this.#sessions.set(name, started);
      started.catch(() => this.#sessions.delete(name));
    }
    return (await this.#sessions.get(name))?.id;
  }
}

function join(dir: string, name: string): string {
  if (name.startsWith("/")) return name;
  return name === "" ? dir : `${dir.replace(/\/$/, "")}/${name}`;
}

function readArguments(args: object | string): Arguments {
  const value: unknown = typeof args === "string" ? JSON.parse(args || "{}") : args;
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new TypeError("got something else");
  return { ...value } as Arguments;
}

/** Returns the result in an answer of JSON or of server-sent events. */
function resultOf(body: Uint8Array): ToolResult {
  const text = new TextDecoder().decode(body).trim();
  const all = text.startsWith("{") ? [JSON.parse(text)] : new Frames().feed(`${text}\n\n`).map((frame) => frame.data);
  const message = (all as Message[]).find((m) => m.result ?? m.error);
  if (!message?.result) return new ToolResult(message?.error?.message ?? "the server did not answer", true);
  const { content = [], structuredContent, isError = false } = message.result;
  const texts = content.filter((part) => part.type === "text").map((part) => part.text);
  const images = content
    .filter((part) => part.type === "image")
    .map((part) => ({ mime: part.mimeType, data: Uint8Array.from(atob(part.data), (c) => c.charCodeAt(0)) }));
  return new ToolResult(texts.join("\n"), isError, images, structuredContent);
}
