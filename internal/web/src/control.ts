// What can be done to a run.
import { post, runPath, type Info } from "./api.ts";
import { link } from "./link.ts";
import { attempt, toast } from "./ui.tsx";

export async function control(info: Info, op: string) {
  const words: Record<string, string> = { interrupt: "Interrupted", stop: "Stopping", kill: "Killed", restart: "Restarting" };
  if (link.value.lostAt) return toast("The connection is lost: nothing is sent.", true);
  await attempt(() => post(runPath(info.id) + "/control", { op }), words[op]);
}
