// What can be done to a run.
import { post, runPath, type Info } from "./api.ts";
import { attempt } from "./ui.tsx";

export async function control(info: Info, op: string) {
  const words: Record<string, string> = { interrupt: "Interrupted", stop: "Stopping", kill: "Killed", restart: "Restarting" };
  await attempt(() => post(runPath(info.id) + "/control", { op }), words[op]);
}
