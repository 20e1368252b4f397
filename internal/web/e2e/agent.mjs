// A small agent that speaks the Agent Client Protocol: it plans, thinks, asks, does and
// answers. The console shows it as it shows every agent. With the argument "blind" it takes
// no images.
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";

let next = 100;
const waiting = new Map();
const send = m => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...m }) + "\n");
const ask = (method, params) => new Promise(resolve => {
  waiting.set(++next, resolve);
  send({ id: next, method, params });
});

async function prompt(sessionId, blocks) {
  const text = blocks.map(p => p.text ?? "").join("");
  const images = blocks.filter(p => p.type === "image");
  const update = u => send({ method: "session/update", params: { sessionId, update: u } });
  if (images.length) {
    const seen = images.map(i => `${i.mimeType} of ${Buffer.from(i.data, "base64").length} bytes`);
    update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: `I see ${seen.join(" and ")}.` } });
    return "end_turn";
  }
  if (text.startsWith("Say: ")) {
    update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: text.slice(5) + "\n\nThat was all." } });
    return "end_turn";
  }
  if (text.includes("Thanks")) {
    update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: "You are welcome." } });
    return "end_turn";
  }
  update({ sessionUpdate: "plan", entries: [{ content: "Look at the failures", status: "completed", priority: "high" }, { content: "Fix the linker", status: "in_progress", priority: "high" }] });
  update({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text: "Stale objects break the link step." } });
  const call = { toolCallId: "c1", title: "rm -rf build && make", kind: "execute", status: "pending", rawInput: { command: "rm -rf build && make" } };
  update({ sessionUpdate: "tool_call", ...call });
  const answer = await ask("session/request_permission", { sessionId, toolCall: call, options: [{ optionId: "yes", name: "Allow once", kind: "allow_once" }, { optionId: "no", name: "Deny", kind: "reject_once" }] });
  const allowed = answer?.outcome?.optionId === "yes";
  update({ sessionUpdate: "tool_call_update", toolCallId: "c1", status: allowed ? "completed" : "failed", content: [{ type: "content", content: { type: "text", text: "linked 42 objects\n" } }] });
  update({ sessionUpdate: "tool_call", toolCallId: "c2", title: "Edit Makefile", kind: "edit", status: "completed", content: [{ type: "diff", path: "Makefile", oldText: "all:\n\tcc\n", newText: "all: clean\n\tcc\n" }] });
  update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: "It is **done**: `make` passes.\n\n- removed stale objects\n- see [the log](https://example.com/log)\n\n<script>alert(1)</script> ![p](https://evil.test/p.png)\n" } });
  return "end_turn";
}

for await (const line of createInterface({ input: process.stdin })) {
  if (!line.trim()) continue;
  const m = JSON.parse(line);
  if (m.method === undefined) {
    waiting.get(m.id)?.(m.result);
    waiting.delete(m.id);
    continue;
  }
  const answer = result => m.id !== undefined && send({ id: m.id, result });
  switch (m.method) {
    case "initialize":
      answer({ protocolVersion: 1, agentCapabilities: { loadSession: false, promptCapabilities: { image: process.argv[2] !== "blind" } }, authMethods: [] });
      break;
    case "session/new":
      answer({ sessionId: randomUUID() }); // only one run of the machine works in a session
      break;
    case "session/prompt":
      void prompt(m.params.sessionId, m.params.prompt).then(stopReason => answer({ stopReason }));
      break;
    case "session/cancel":
      break;
    default:
      if (m.id !== undefined) send({ id: m.id, error: { code: -32601, message: "no such method" } });
  }
}
