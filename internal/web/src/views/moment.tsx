// Looking back at the turns of a run, on a line of time.
import { useState } from "preact/hooks";
import type { Info } from "../api.ts";
import { asOf, type Turn } from "../turns.ts";
import { LookBack } from "./lookback.tsx";

/** useMoment gives the turns that a view shows: all, or those of a moment, and the bar to
 * choose it. */
export function useMoment(info: Info, list: Turn[], what: string) {
  const [at, setAt] = useState<number | null>(null);
  const shown = at === null ? list : asOf(list, at);
  const bar = <LookBack info={info} at={at} move={setAt} player={{ show: async () => {}, write: () => {} }} what={what} />;
  return { shown, bar, back: at !== null };
}
