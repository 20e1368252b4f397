// A map over sandboxes: each value is computed by untrusted code in a sandbox of its own.
//
//   node sandboxes.js "sum(range(x))" 100 8
import { local, type Spool } from "@spool-run/sdk/node";

/** Returns what the code gives for a value, or what it raised. */
async function compute(spool: Spool, code: string, x: number): Promise<string> {
  const box = await spool.box({ name: `x-${x}` });
  try {
    const cell = await box.exec(`x = ${x}\n${code}`, { timeoutMs: 60_000 });
    return cell.ok ? String(cell.result) : `${cell.outcome}: ${cell.text}`;
  } finally {
    await box.stop();
  }
}

const [code = "x", count = "100", parallel = "8"] = process.argv.slice(2);
const spool = await local();
const results: string[] = [];
let next = 0;
const worker = async () => {
  for (let x = next++; x < Number(count); x = next++) results[x] = await compute(spool, code, x);
};
await Promise.all(Array.from({ length: Number(parallel) }, worker));
for (const [x, result] of results.entries()) console.log(x, result);
process.exit();
