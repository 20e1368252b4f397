// Several coding agents on one task, each on a view of the directory of its own; the best
// changes are applied: of those that pass the check, the smallest.
//
//   OPENAI_API_KEY=… node best.js "Make the tests pass." "python3 -B -m unittest" 3
import { type Kernel, local, type Spool, Tools } from "@spool-run/sdk/node";

import { solve } from "./agent.js";

const how = "\nYou have Python in the directory; run commands with subprocess.";

/** Has an agent try, and returns whether the check passes, the size of the changes, and the run. */
async function attempt(spool: Spool, task: string, check: string): Promise<{ ok: boolean; size: number; kernel: Kernel }> {
  const kernel = await spool.kernel({ workspace: { kind: "overlay" }, config: { input: "ask" } });
  await solve(task + how, new Tools(spool, { names: ["python"], kernel, budget: 4000 }));
  const cell = await kernel.exec(`import subprocess\nsubprocess.run(${JSON.stringify(check)}, shell=True).returncode`);
  const size = (await kernel.changes()).reduce((sum, change) => sum + (change.patch?.length ?? 0), 0);
  await kernel.stop();
  await kernel.wait();
  return { ok: cell.result === "0", size, kernel };
}

const [task = "", check = "", agents = "3"] = process.argv.slice(2);
const spool = await local();
const attempts = await Promise.all(Array.from({ length: Number(agents) }, () => attempt(spool, task, check)));
const [best, ...others] = attempts.filter(({ ok, size }) => ok && size > 0).sort((a, b) => a.size - b.size);
console.log(`${best ? others.length + 1 : 0} of ${agents} attempts pass`);
if (best) {
  for (const change of await best.kernel.changes()) console.log(`${change.op} ${change.path}\n${change.patch ?? ""}`);
  await best.kernel.apply();
}
process.exit(best ? 0 : 1);
