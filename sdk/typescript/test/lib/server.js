// The real server, in a process of its own.
import { spawn, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const program = process.env.SPOOL_PROGRAM;

// end ends the server and the keeper of a state directory, with all runs, and waits for it.
export async function end(state) {
  for (let i = 0; i < 600; i++) {
    const found = spawnSync("pkill", ["-TERM", "-f", `(serve --state|keeper-role -state) ${state} `]);
    if (found.status === 1) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`processes of ${state} do not end`);
}

export async function startServer() {
  const state = await mkdtemp(join(tmpdir(), "sp"));
  const child = spawn(program, ["serve", "--state", state, "--listen", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "ignore"] });
  const [line] = await new Promise((resolve) => createInterface(child.stdout).once("line", (l) => resolve([l])));
  const url = line.split("#")[0].replace(/\/$/, "");
  const states = [];
  return {
    url,
    token: readFileSync(join(state, "server-token"), "utf8").trim(),
    forget: (other) => states.push(other),
    async stop() {
      child.kill("SIGTERM");
      await new Promise((resolve) => child.once("exit", resolve));
      for (const s of [state, ...states]) {
        await end(s);
        await rm(s, { recursive: true, force: true });
      }
    },
  };
}
