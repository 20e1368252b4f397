// A loop that analyses data: the model writes cells, and sees the plots that they draw.
//
//   ANTHROPIC_API_KEY=… node analysis.js "Which day was the warmest? Plot it." .venv/bin/python
//
// The interpreter needs the packages that the model will want, such as matplotlib.
import { writeFileSync } from "node:fs";

import { local, Tools } from "@spool-run/sdk/node";

const { ANTHROPIC_BASE_URL: url = "https://api.anthropic.com", ANTHROPIC_API_KEY: key = "none" } = process.env;
const model = process.env.ANTHROPIC_MODEL ?? "claude-sonnet-4-5";

type Block = { type: string; text?: string; id: string; name: string; input: object };

/** Has the model answer a question, and saves its plots as plot-1.png, plot-2.png … */
async function analyse(question: string, tools: Tools, steps = 50): Promise<string> {
  const messages: object[] = [{ role: "user", content: question }];
  let plots = 0;
  for (let step = 0; step < steps; step++) {
    const answer = await fetch(`${url}/v1/messages`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "x-api-key": key, "anthropic-version": "2023-06-01" },
      body: JSON.stringify({ model, max_tokens: 8000, messages, tools: tools.asAnthropic() }),
    });
    if (!answer.ok) throw new Error(`the model: ${answer.status} ${await answer.text()}`);
    const { content } = (await answer.json()) as { content: Block[] };
    messages.push({ role: "assistant", content });
    const results: object[] = [];
    for (const block of content.filter(({ type }) => type === "tool_use")) {
      const result = await tools.call(block.name, block.input);
      for (const image of result.images) writeFileSync(`plot-${++plots}.png`, image.data);
      results.push(result.asAnthropic(block.id));
    }
    if (results.length === 0) return content.map((block) => block.text ?? "").join("");
    messages.push({ role: "user", content: results });
  }
  return "I gave up.";
}

const [question = "", interpreter] = process.argv.slice(2);
const spool = await local();
const kernel = await spool.kernel({ config: { input: "ask", ...(interpreter ? { interpreter } : {}) } });
console.log(await analyse(question, new Tools(spool, { names: ["python"], kernel, budget: 4000 })));
await kernel.stop();
process.exit();
