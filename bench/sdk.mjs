// Measures the TypeScript client in Node, as sdk.py does the Python one. The client is
// compiled in the directory of this file. It leaves its server running.
import { local } from "./dist/node.js";

const plan = JSON.parse(process.argv[2]);
const out = {};
const add = (metric, value) => (out[metric] ??= []).push(value);

const spool = await local({ state: plan.state });
for (let i = 0; i < plan.times; i++) {
  let start = performance.now();
  const run = await (await local({ state: plan.state })).run(["echo", "x"]);
  for await (const chunk of run.stream()) {
    if (chunk.length > 0) break;
  }
  add("sdk.node.first", (performance.now() - start) / 1000);
  start = performance.now();
  let n = 0;
  for await (const event of (await spool.get("events")).events()) n += event.seq > 0 ? 1 : 0;
  add("sdk.node.events", n / ((performance.now() - start) / 1000));
  if (n !== plan.events) throw new Error(`${n} events`);
}
console.log(JSON.stringify(out));
process.exit();
