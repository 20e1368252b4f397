// The turns of a run while it is looked at.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Info } from "../api.ts";
import { follow } from "../link.ts";
import { Turns } from "../turns.ts";

const begin = 5000; // events before the end with which a long log begins

export interface TurnsView {
  turns: Turns;
  caughtUp: boolean;
  problem: string;
  from: number; // the cursor with which it began
  earlier(): void;
}

export function useTurns(info: Info): TurnsView {
  const [from, setFrom] = useState(() => Math.max(0, info.last - begin));
  const [problem, setProblem] = useState("");
  const [, redraw] = useState(0);
  const turns = useRef(new Turns());
  const caught = useRef(info.last === 0);
  useEffect(() => {
    // What is there already is shown at once, when all of it has come.
    const t = new Turns();
    const end = info.last;
    let here = false;
    const show = () => {
      here = true;
      turns.current = t;
      caught.current = true;
    };
    if (end <= from) show();
    let scheduled = false;
    const draw = () => {
      if (!here || scheduled) return;
      scheduled = true;
      setTimeout(() => {
        scheduled = false;
        redraw(n => n + 1);
      }, 50);
    };
    const stop = follow(info.id, from, {
      event(e) {
        t.take(e);
        if (!here && e.seq >= end) show();
        draw();
      },
      end(text) {
        show();
        setProblem(text);
        draw();
      },
    });
    return stop;
  }, [info.id, from]);
  return { turns: turns.current, caughtUp: caught.current, problem, from, earlier: () => setFrom(Math.max(0, from - begin)) };
}

/** useStick keeps the end of the page in view while it is, and nothing moves otherwise. */
export function useStick() {
  const at = useRef(true);
  useEffect(() => {
    const note = () => (at.current = innerHeight + scrollY >= document.documentElement.scrollHeight - 120);
    addEventListener("scroll", note, { passive: true });
    const grown = new ResizeObserver(() => at.current && scrollTo({ top: document.documentElement.scrollHeight }));
    grown.observe(document.getElementById("app")!);
    return () => {
      removeEventListener("scroll", note);
      grown.disconnect();
    };
  }, []);
}
