// Has a coding agent work, with approvals, and asks another one through the tools for models.
import { Retyped, Spool, Tools } from "@spool-run/sdk";

const [url, token, cwd, snippet] = process.argv.slice(2);
const { HOME, PATH, PIXEL } = process.env;
const asked = [];
const approve = ({ data, retype }) => {
  asked.push(data.command);
  if (!retype) return true;
  return data.command.includes("scrap") ? new Retyped(data.command) : false;
};
const policy = { rule: [{ verdict: "ask", command: ["rm"], retype: true }] };
const config = { mode: "duplex", permissions: "untrusted", sandbox: "danger-full-access", policy };
const spool = new Spool({ url, token });
const agent = await spool.agent("codex", { cwd, env: { HOME, PATH }, approve, config });
const answer = await agent.prompt("Make a file, remove others.", {
  images: [{ mime: "image/png", data: Buffer.from(PIXEL, "base64") }],
});
const result = await new Tools(spool, { cwd }).call("ask_agent", { agent: "codex", prompt: "Say something." });
console.log(JSON.stringify([answer.text, asked.length, result.data.text, result.isError]));
await new Function("spool", `return (async () => {${snippet}})()`)(spool);
