// The pictures of the console in the docs: node e2e/pictures.mjs DIRECTORY.
import { join } from "node:path";
import { browser, Server, visit } from "./server.mjs";

const to = process.argv[2];
const server = new Server();
await server.start();
const b = await browser();
const home = { cwd: "/tmp" };
const runs = [];
const add = async run => runs.push((await run).id);

await add(server.shell("exit 0", { name: "deploy", ...home }));
await add(server.shell("i=0; while [ $i -lt 1200 ]; do i=$((i+1)); printf '\\033[32mok\\033[0m    example.com/api/package%d\\t0.%03ds\\n' $i $((i*7%900)); [ $((i%97)) -eq 0 ] && printf '\\033[33mwarning\\033[0m: cache of package%d is stale\\n' $i >&2; done; printf '\\033[31;1mFAIL\\033[0m  example.com/api/auth  2.113s\\n'; echo 'FAIL: 1 of 1201 packages'; exit 2", { name: "make test", ...home }));
await add(server.shell("i=0; while :; do i=$((i+1)); echo \"epoch $((i/100+1))/40  step $i  loss 0.$((RANDOM%900+100))\"; sleep 0.1; done", { name: "train", ...home, labels: { team: "ml" } }));
await add(server.run({ argv: ["bash", "--norc"], tty: { rows: 24, cols: 80 }, name: "shell", ...home }));
await add(server.run({ engine: "kernel", name: "scratch", ...home }));
const agent = await server.run({ engine: "agent", name: "fix-tests", ...home, config: { agent: "acp", command: ["node", join(import.meta.dirname, "agent.mjs")] } });
runs.push(agent.id);
await server.call("POST", `/v1/runs/${agent.id}/turns`, { prompt: { text: "Make the tests pass." } });

const page = await visit(b, server.open(), { deviceScaleFactor: 1, viewport: { width: 1200, height: 640 } });
await page.locator(".news.waiting").waitFor();
await page.waitForTimeout(500);
await page.screenshot({ path: join(to, "console-runs.png") });

const dark = await visit(b, server.open(runs[1]), { colorScheme: "dark", viewport: { width: 1200, height: 640 } });
await dark.locator(".row").first().waitFor();
for (const key of ["g", "g", "/"]) await dark.keyboard.press(key);
await dark.keyboard.type("stale");
await dark.locator("mark.at").waitFor();
await dark.waitForTimeout(500);
await dark.screenshot({ path: join(to, "console-log.png") });

await page.goto(`${server.url}/runs/${agent.id}`);
await page.locator(".card.ask").waitFor();
await page.setViewportSize({ width: 1200, height: 960 });
await page.waitForTimeout(500);
await page.screenshot({ path: join(to, "console-conversation.png") });

await b.close();
for (const id of runs) await server.call("POST", `/v1/runs/${id}/control`, { op: "kill" }).catch(() => {});
await server.kill("SIGTERM");
process.exit(0);
