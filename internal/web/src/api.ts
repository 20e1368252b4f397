// Requests to the API. A page proves who it is with a cookie, which it cannot read, and
// with its key.
import type { Problem } from "../../../sdk/typescript/src/types.ts";

export type * from "../../../sdk/typescript/src/types.ts";

const keyName = "spool-key";

export const key = {
  get: () => localStorage.getItem(keyName) ?? "",
  set: (value: string) => localStorage.setItem(keyName, value),
  clear: () => localStorage.removeItem(keyName),
};

/** Failure is an answer that is no success, in words for a person. */
export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly problem?: Problem,
  ) {
    super(message);
  }

  get hint(): string {
    return this.problem?.hint ?? "";
  }

  /** lost is whether there was no answer at all. */
  get lost(): boolean {
    return this.status === 0;
  }
}

/** sentence makes a text of the server one that begins and ends like a sentence. */
function sentence(text: string): string {
  const t = text.trim();
  if (!t) return t;
  return t[0]!.toUpperCase() + t.slice(1) + (/[.!?…]$/.test(t) ? "" : ".");
}

async function failure(answer: Response): Promise<Failure> {
  try {
    const p = (await answer.json()) as Problem;
    let text = sentence(p.detail || p.title);
    if (p.code === "forbidden" && p.scope) text = `You may not do this: it needs the scope ${p.scope}.`;
    if (p.code === "not_found") text = "There is no such run, or you may not see it.";
    if (p.retry_after_ms) text += ` Try again in ${Math.ceil(p.retry_after_ms / 1000)} s.`;
    return new Failure(answer.status, p.code, text, p);
  } catch {
    return new Failure(answer.status, "", `The server answers with the status ${answer.status}.`);
  }
}

/** unauthenticated is called when the server no longer knows this page. */
let unauthenticated: () => void = () => {};
export function onUnauthenticated(f: () => void) {
  unauthenticated = f;
}

export interface Options {
  body?: unknown;
  bytes?: BodyInit;
  accept?: string;
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
}

/** request sends a request and returns a successful answer, or throws a Failure. */
export async function request(method: string, path: string, o: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { ...o.headers };
  const k = key.get();
  if (k) headers["Spool-Key"] = k;
  if (o.accept) headers["Accept"] = o.accept;
  if (o.body !== undefined) headers["Content-Type"] = "application/json";
  if (o.bytes !== undefined) headers["Content-Type"] = "application/octet-stream";
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: o.body !== undefined ? JSON.stringify(o.body) : o.bytes,
      cache: "no-store",
      signal: o.signal,
    });
  } catch (e) {
    if (o.signal?.aborted) throw e;
    throw new Failure(0, "", "The server cannot be reached.");
  }
  if (answer.ok) return answer;
  const f = await failure(answer);
  if (f.status === 401 && path !== "/v1/session") unauthenticated();
  throw f;
}

export async function get<T>(path: string, o: Options = {}): Promise<T> {
  return (await (await request("GET", path, { accept: "application/json", ...o })).json()) as T;
}

export async function post<T>(path: string, body: unknown, o: Options = {}): Promise<T> {
  const answer = await request("POST", path, { body, ...o });
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

/** query makes the query of an address; undefined and empty values are left out. */
export function query(values: Record<string, string | number | boolean | string[] | undefined>): string {
  const q = new URLSearchParams();
  for (const [name, v] of Object.entries(values)) {
    if (Array.isArray(v)) for (const one of v) q.append(name, one);
    else if (v === true) q.set(name, "1");
    else if (v !== undefined && v !== "" && v !== false) q.set(name, String(v));
  }
  const text = q.toString();
  return text ? "?" + text : "";
}

export const runPath = (id: string) => "/v1/runs/" + encodeURIComponent(id);

/** words are what to tell a person about an error. */
export function words(e: unknown): string {
  return e instanceof Error ? e.message : String(e);
}
