// A coding agent: a model, a loop, and the tools of Spool.
//
//   OPENAI_API_KEY=… node agent.js "Make the tests pass."
import { local, type Tools } from "@spool-run/sdk/node";

const { OPENAI_BASE_URL: url = "https://api.openai.com/v1", OPENAI_MODEL: model = "gpt-5", OPENAI_API_KEY: key = "none" } = process.env;
const rules = "You are a coding agent. Work with the tools until the task is done, then say what you did.";

interface Message {
  role: string;
  content: string;
  tool_calls?: { id: string; function: { name: string; arguments: string } }[];
}

/** Has the model work on a task, and returns what it says in the end. */
export async function solve(task: string, tools: Tools, steps = 50): Promise<string> {
  const messages: object[] = [{ role: "system", content: rules }, { role: "user", content: task }];
  for (let step = 0; step < steps; step++) {
    const answer = await fetch(`${url}/chat/completions`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${key}` },
      body: JSON.stringify({ model, messages, tools: tools.asOpenAI() }),
    });
    if (!answer.ok) throw new Error(`the model: ${answer.status} ${await answer.text()}`);
    const { choices } = (await answer.json()) as { choices: [{ message: Message }] };
    const message = choices[0].message;
    messages.push(message);
    if (!message.tool_calls?.length) return message.content;
    for (const call of message.tool_calls) {
      console.error(`> ${call.function.name} ${call.function.arguments}`);
      messages.push((await tools.call(call.function.name, call.function.arguments)).asOpenAI(call.id));
    }
  }
  return "I gave up.";
}

if (process.argv[1] === import.meta.filename) {
  console.log(await solve(process.argv.slice(2).join(" "), (await local()).tools));
  process.exit();
}
