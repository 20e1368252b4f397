// Looking back at the turns of a run, on a line of time.
import { useState } from "preact/hooks";
import type { Info } from "../api.ts";
import { visible } from "../sgr.ts";
import { asOf, lastSaid, type Turn } from "../turns.ts";
import { LookBack } from "./lookback.tsx";

/** useMoment gives the turns that a view shows: all, or those of a moment, and the bar to
 * choose it. */
export function useMoment(info: Info, list: Turn[], what: string) {
  const [at, setAt] = useState<number | null>(null);
  const shown = at === null ? list : asOf(list, at);
  const said = async (seq: number) => visible(lastSaid(list, seq)).slice(0, 300);
  const bar = <LookBack info={info} at={at} move={setAt} player={{ show: async () => {}, write: () => {}, ...(info.engine === "agent" && { said }) }} what={what} />;
  return { shown, bar, back: at !== null };
}
