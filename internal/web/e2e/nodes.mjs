// Journeys through the console of a node of a cluster.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { fair, see } from "./page.mjs";
import { program, Server, visit } from "./server.mjs";

const port = Number(process.env.SPOOL_PORTS);
const [first, second] = (process.env.SPOOL_NODES ?? "").split(":");

export default ({ b }) => ({
  async "nodes of a cluster"() {
    const cluster = (dir, args, input) => execFileSync(program, ["--state", dir, "cluster", ...args], { encoding: "utf8", input, stdio: ["pipe", "pipe", "inherit"] });
    cluster(second, ["join"], cluster(first, ["init", "--control", `127.0.0.1:${port}`]));
    const one = new Server(first, "--cluster", "--node", "one", "--cluster-listen", `127.0.0.1:${port}`);
    const two = new Server(second, "--cluster", "--node", "two", "--cluster-listen", `127.0.0.1:${port + 3}`, "--node-label", "disk=fast");
    await Promise.all([one.start(), two.start()]);
    try {
      const page = await visit(b, one.open());
      await page.goto(one.url + "/settings");
      const row = name => page.locator("section[aria-label=Nodes] tbody tr", { hasText: new RegExp("^" + name) });
      await row("one").filter({ hasText: "(this one)" }).filter({ hasText: "up" }).waitFor();
      await row("two").filter({ hasText: "disk=fast" }).filter({ hasText: `127.0.0.1:${port + 3}` }).waitFor(); // it may have joined after the page was there
      await fair(page, "nodes");
      // A run of the other node: where it is, what it writes, and its end.
      const run = await one.shell("echo there; read x", { name: "far", stdin: true, labels: { "place.node": "two" } });
      assert.equal(run.node, "two");
      await page.goto(`${one.url}/runs/${run.id}`);
      await see(page, "on two");
      await see(page, "there");
      await one.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
      await page.locator(".outcome").waitFor();
      // What becomes of a node is seen while the page is open.
      await page.goto(one.url + "/settings");
      await row("two").filter({ hasText: "up" }).waitFor();
      cluster(second, ["drain"]);
      await row("two").filter({ hasText: "draining" }).waitFor();
      await page.context().close();
    } finally {
      await Promise.all([one, two].map(s => s.kill("SIGTERM")));
    }
  },
});
