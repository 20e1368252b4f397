// The way to the line of time, which is loaded when somebody wants to look back.
import { useState } from "preact/hooks";
import type { EventPage, Info } from "../api.ts";
import { useActs } from "../keys.ts";
import { Icon } from "../ui.tsx";
import { Part } from "./part.tsx";

export interface Player {
  /** show shows what there was after an event. */
  show(seq: number): Promise<void>;
  /** write shows what an event adds. */
  write(page: EventPage["events"][number]): void;
  /** said is what was written or said last; without it, the last line of the output. */
  said?(seq: number): Promise<string>;
}

export interface Looking {
  info: Info;
  at: number | null; // null while the view is live
  move(seq: number | null): void;
  player: Player;
}

/** LookBack is a line of time, or a button for one; what is what the view shows, for
 * people. */
export function LookBack({ what, ...looking }: Looking & { what: string }) {
  const { info, at } = looking;
  const [asked, ask] = useState(at !== null || (info.state === "closed" && innerWidth > 640));
  useActs(asked ? [] : ["Space", "[", ","].map(keys => ({ keys, text: "Look back", run: () => ask(true) })), asked);
  if (asked || at !== null) return <Part name="Scrubber" props={looking} label="the line of time" meanwhile={<div class="scrubber" />} />;
  return (
    <div class="scrubber">
      <button onClick={() => ask(true)}>
        <Icon name="play" /> Look back
      </button>
      <span class="quiet">{what} at any moment since it began</span>
    </div>
  );
}
