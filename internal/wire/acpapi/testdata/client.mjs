// A client made of the protocol's SDK for TypeScript: it begins a session, prompts, allows
// what it is asked, and loads the session in another connection. It prints what it saw.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const { program, args, cwd } = JSON.parse(process.env.SPOOL_TEST_ACP);
// A server that only leaves what it was given.
const probe = { name: "a probe", command: "/bin/sh", args: ["-c", 'echo "$0 $PROBE" >probe.txt', '"x"'], env: [{ name: "PROBE", value: "secret" }] };
const report = { asked: [], said: "" };

async function connect(updates, use) {
  const child = spawn(program, args, { cwd, stdio: ["pipe", "pipe", "inherit"] });
  const app = acp
    .client({ name: "journey" })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
      report.asked.push(params.toolCall.kind);
      const { optionId } = params.options.find((o) => o.kind === "allow_once");
      return { outcome: { outcome: "selected", optionId } };
    })
    .onNotification(acp.methods.client.session.update, ({ params }) => {
      updates.push(params.update.sessionUpdate);
      if (params.update.sessionUpdate === "agent_message_chunk") report.said += params.update.content.text;
    });
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  await app.connectWith(stream, async (ctx) => {
    const info = await ctx.request(acp.methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientInfo: { name: "journey", version: "1" },
      clientCapabilities: {},
    });
    report.agent = info.agentInfo.title;
    await use(ctx);
  });
  child.stdin.end();
}

report.live = [];
report.loaded = [];
let sessionId;
await connect(report.live, async (ctx) => {
  ({ sessionId } = await ctx.request(acp.methods.agent.session.new, { cwd, mcpServers: [probe] }));
  const done = await ctx.request(acp.methods.agent.session.prompt, {
    sessionId,
    prompt: [{ type: "text", text: "Go." }],
  });
  report.stop = done.stopReason;
});
await connect(report.loaded, async (ctx) => {
  const { sessions } = await ctx.request(acp.methods.agent.session.list, { cwd });
  report.listed = sessions.map((s) => s.title);
  await ctx.request(acp.methods.agent.session.load, { sessionId, cwd, mcpServers: [] });
  await ctx.request(acp.methods.agent.session.close, { sessionId });
});
console.log(JSON.stringify(report));
