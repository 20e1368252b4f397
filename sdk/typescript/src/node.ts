/** What needs Node: the server of this user. */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { Readable } from "node:stream";

import { Spool } from "./client.js";
import { ConnectionLost, NoProgram } from "./errors.js";
import type { Fetch } from "./http.js";

export * from "./index.js";

const startMs = 20_000;
const exitIdle = "10m"; // a server that nobody uses ends; runs go on without it

/**
 * Returns the server of this user, and starts it if it does not run. `state` is the directory
 * of the logs, and `program` the spool program; both have the usual defaults.
 */
export async function local(options: { state?: string; program?: string } = {}): Promise<Spool> {
  const state = options.state ?? process.env.SPOOL_STATE ?? defaultState();
  const socket = join(state, "api.sock");
  const ensure = async () => {
    if (!(await answers(socket))) await start(options.program ?? findProgram(), state, socket);
  };
  await ensure();
  const defaults = () => ({ cwd: process.cwd(), env: { ...process.env } as Record<string, string> });
  return new Spool({ url: "http://localhost", fetch: overSocket(socket, ensure), defaults });
}

async function start(program: string, state: string, socket: string): Promise<void> {
  mkdirSync(state, { mode: 0o700, recursive: true });
  const child = spawn(program, ["serve", "--state", state, "--listen", `unix:${socket}`, "--exit-idle", exitIdle], {
    cwd: "/",
    detached: true,
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  let ended: string | undefined;
  child.stderr.on("data", (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(0, 2000);
  });
  child.on("error", (error) => {
    ended = String(error);
  });
  child.on("exit", (code) => {
    ended = `it ended with ${code}`;
  });
  for (const until = Date.now() + startMs; !(await answers(socket)); ) {
    if (ended !== undefined && !said.includes("in use")) throw new ConnectionLost(`spool serve: ${ended}: ${said.trim()}`);
    if (Date.now() > until) throw new ConnectionLost("spool serve does not listen");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  child.stderr.destroy();
  child.unref();
}

function answers(socket: string): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = connect(socket);
    connection.on("connect", () => resolve(true));
    connection.on("error", () => resolve(false));
    connection.on("connect", () => connection.destroy());
  });
}

function defaultState(): string {
  return join(process.env.XDG_STATE_HOME ?? join(homedir(), ".local/state"), "spool");
}

function findProgram(): string {
  const named = process.env.SPOOL_PROGRAM;
  if (named) return named;
  try {
    const manifest = `@spool-run/${process.platform}-${process.arch}/package.json`;
    return join(dirname(createRequire(import.meta.url).resolve(manifest)), "bin", "spool");
  } catch {
    // the package for this platform is not installed
  }
  for (const dir of (process.env.PATH ?? "").split(":")) {
    if (dir && existsSync(join(dir, "spool"))) return join(dir, "spool");
  }
  throw new NoProgram("there is no spool in PATH\nhint: install it, or set SPOOL_PROGRAM");
}

/**
 * Returns a `fetch` that talks to a unix socket, which the global one cannot. It starts the
 * server again if that has ended: one that nobody uses does.
 */
function overSocket(socketPath: string, ensure: () => Promise<void>): Fetch {
  const send = fetchOver(socketPath);
  return async (url, init) => {
    try {
      return await send(url, init);
    } catch (error) {
      if (!["ENOENT", "ECONNREFUSED"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
    }
    await ensure();
    return send(url, init);
  };
}

function fetchOver(socketPath: string): Fetch {
  const agent = new http.Agent({ keepAlive: true });
  const send: Fetch = (url, init) =>
    new Promise<Response>((resolve, reject) => {
      const { pathname, search } = new URL(url);
      const headers = init.headers as Record<string, string>;
      const request = http.request(
        {
          socketPath,
          agent,
          path: pathname + search,
          method: init.method ?? "GET",
          headers,
          ...(init.signal ? { signal: init.signal } : {}),
        },
        (answer) => {
          const status = answer.statusCode ?? 500;
          if (status === 307) {
            answer.resume();
            resolve(send(new URL(answer.headers.location ?? "", url).href, init));
            return;
          }
          const none = status === 204 || status === 304;
          if (none) answer.resume();
          const body = none ? null : (Readable.toWeb(answer) as ReadableStream<Uint8Array>);
          resolve(new Response(body, { status, headers: answer.headers as Record<string, string> }));
        },
      );
      request.on("error", reject);
      request.end(init.body as Uint8Array | string | undefined);
    });
  return send;
}
