// The turns of a run, from the events of its log. Bounded: the oldest turns go first.
import type { Done } from "./api.ts";
import type { PromptImage } from "./images.ts";
import { textOf, type LogEvent } from "./record.ts";

export interface Item {
  seq: number;
  time: string;
  type: string; // output, display, result, exception, message, reasoning, action, plan, ask, notice, retry
  text: string; // of output, messages and reasoning
  stream?: string;
  cut?: boolean; // text is not all there was
  data?: any;
  id?: string; // of a message, an action or a display
  answered?: { by: string; data: any; error?: string };
}

export interface Turn {
  seq: number; // zero for what belongs to no turn
  time: string;
  kind: string; // cell, prompt or empty
  input: string;
  images: PromptImage[];
  secret: boolean;
  items: Item[];
  done?: Done;
  doneSeq?: number;
  usage?: any;
}

/** asOf are turns as they were after an event: what came later is left out. */
export function asOf(list: Turn[], seq: number): Turn[] {
  const then: Turn[] = [];
  for (const t of list) {
    if (t.seq > seq || (!t.seq && (t.items[0]?.seq ?? 0) > seq)) continue;
    const { done, usage, ...rest } = t;
    const over = t.doneSeq !== undefined && t.doneSeq <= seq;
    then.push({ ...rest, items: t.items.filter(i => i.seq <= seq), ...(over && done && { done }), ...(over && usage && { usage }) });
  }
  return then;
}

/** lastSaid is the last that was said, done or asked after an event, on one line. */
export function lastSaid(list: Turn[], seq: number): string {
  const turn = asOf(list, seq).at(-1);
  const item = turn?.items.at(-1);
  const d = item?.data ?? {};
  const text = !item ? (turn?.secret ? "(secret)" : turn?.input) : item.type === "ask" ? "Asked: " + (d.data?.command || d.prompt || d.name || d.kind) : item.text || d.title || d.tool || d.items?.[0]?.text || d.kind;
  return String(text ?? "").trim().split("\n")[0]!;
}

const mostTurns = 200;
const mostItems = 1000; // of a turn
const mostText = 200_000; // characters of one piece of output

export class Turns {
  list: Turn[] = [];
  cut = false; // older turns were dropped
  started: any = null;
  usage: any = null;
  private bySeq = new Map<number, Turn>();
  private clearNext = new Set<number>();

  private turn(e: LogEvent): Turn {
    const seq = e.turn ?? 0;
    const last = this.list.at(-1);
    // What comes between turns is a part of its own, where it came.
    if (seq === 0 && last?.seq === 0) return last;
    let t = seq ? this.bySeq.get(seq) : undefined;
    if (!t) {
      t = { seq, time: e.time, kind: "", input: "", images: [], secret: false, items: [] };
      this.push(t);
    }
    return t;
  }

  private push(t: Turn) {
    this.list.push(t);
    if (t.seq) this.bySeq.set(t.seq, t);
    while (this.list.length > mostTurns) {
      this.bySeq.delete(this.list.shift()!.seq);
      this.cut = true;
    }
  }

  private add(t: Turn, item: Item) {
    if (this.clearNext.delete(t.seq)) t.items = [];
    t.items.push(item);
    if (t.items.length > mostItems) t.items.splice(0, t.items.length - mostItems);
  }

  take(e: LogEvent) {
    const d = e.data ?? {};
    switch (e.kind) {
      case "input":
        return this.input(e, d);
      case "output": {
        const t = this.turn(e);
        const last = t.items.at(-1);
        const text = textOf(e);
        if (last?.type === "output" && last.stream === e.stream && !this.clearNext.has(t.seq)) {
          last.text += text;
          if (last.text.length > mostText) {
            last.text = last.text.slice(-mostText / 2);
            last.cut = true;
          }
          return;
        }
        return this.add(t, { seq: e.seq, time: e.time, type: "output", text, stream: e.stream ?? "stdout" });
      }
      case "display":
      case "result":
        return this.display(e, d);
      case "exception":
        return this.add(this.turn(e), { seq: e.seq, time: e.time, type: "exception", text: "", data: d });
      case "message":
      case "reasoning":
        return this.said(e, d);
      case "action":
        return this.action(e, d);
      case "plan": {
        const t = this.turn(e);
        const old = t.items.findLast(i => i.type === "plan" && i.id === (d.id ?? ""));
        if (old) old.data = d;
        else this.add(t, { seq: e.seq, time: e.time, type: "plan", text: "", data: d, id: d.id ?? "" });
        return;
      }
      case "usage":
        this.usage = d;
        this.turn(e).usage = d;
        return;
      case "started":
        this.started = d;
        return;
      case "ask":
        return this.add(this.turn(e), { seq: e.seq, time: e.time, type: "ask", text: "", data: d, ...(d.answer && { answered: { by: d.answer.by ?? "the policy", data: d.answer.data } }) });
      case "notice": {
        if (d.code === "ask_closed" && d.ask) {
          const item = this.find(d.ask);
          if (item && !item.answered) item.answered = { by: d.by ?? "", data: undefined, error: d.text };
          return;
        }
        if (d.code === "turn_began" || d.level === "debug") return;
        return this.add(this.turn(e), { seq: e.seq, time: e.time, type: "notice", text: d.text ?? "", data: d });
      }
      case "retry":
        return this.add(this.turn(e), { seq: e.seq, time: e.time, type: "retry", text: "", data: d });
      case "truncated":
        return this.add(this.turn(e), { seq: e.seq, time: e.time, type: "truncated", text: "", data: d });
      case "done": {
        const t = this.turn(e);
        t.done = d;
        t.doneSeq = e.seq;
        if (d.usage) t.usage = d.usage;
        return;
      }
    }
  }

  private input(e: LogEvent, d: any) {
    if (d.kind === "answer") {
      const item = this.find(d.data?.ask);
      if (item) item.answered = { by: d.data.by ?? "", data: d.data.data, ...(d.data.error && { error: d.data.error.message }) };
      return;
    }
    if (d.kind !== "cell" && d.kind !== "prompt") return;
    this.push({ seq: e.seq, time: e.time, kind: d.kind, input: d.data?.code ?? d.data?.text ?? "", images: d.data?.images ?? [], secret: d.data === undefined, items: [] });
    const c = d.data;
    if (c?.module) this.list.at(-1)!.input = "python -m " + [c.module, ...(c.args ?? [])].join(" ");
  }

  private find(ask: number): Item | undefined {
    for (let i = this.list.length - 1; i >= 0; i--) {
      const item = this.list[i]!.items.find(x => x.type === "ask" && x.seq === ask);
      if (item) return item;
    }
    return undefined;
  }

  private display(e: LogEvent, d: any) {
    const t = this.turn(e);
    const forms = Object.keys(d).some(k => k.includes("/") && k !== "application/vnd.spool.status+json");
    if (d.clear) {
      if (d.wait) this.clearNext.add(t.seq);
      else t.items = t.items.filter(i => i.type === "ask");
      if (!forms) return;
    }
    if (!forms) return;
    if (d.update && d.id) {
      for (const turn of this.list) {
        const old = turn.items.find(i => i.type === "display" && i.id === d.id);
        if (old) {
          old.data = d;
          old.seq = e.seq;
        }
      }
      return;
    }
    this.add(t, { seq: e.seq, time: e.time, type: e.kind, text: "", data: d, id: d.id });
  }

  private said(e: LogEvent, d: any) {
    const t = this.turn(e);
    const old = d.id ? t.items.findLast(i => i.type === e.kind && i.id === d.id) : d.delta ? t.items.at(-1) : undefined;
    const open = old && old.type === e.kind && old.data?.delta ? old : undefined;
    if (d.delta) {
      if (open) open.text += d.text;
      else this.add(t, { seq: e.seq, time: e.time, type: e.kind, text: d.text, data: d, id: d.id });
      return;
    }
    // The whole text takes the place of its pieces.
    const pieces = open ?? (t.items.at(-1)?.type === e.kind && t.items.at(-1)!.data?.delta ? t.items.at(-1) : undefined);
    if (pieces) {
      pieces.text = d.text;
      pieces.data = d;
      return;
    }
    this.add(t, { seq: e.seq, time: e.time, type: e.kind, text: d.text ?? "", data: d, id: d.id });
  }

  private action(e: LogEvent, d: any) {
    if (d.kind === "turn") return;
    const t = this.turn(e);
    const old = t.items.findLast(i => i.type === "action" && i.id === d.id);
    if (old) {
      old.data = { ...old.data, ...d };
      return;
    }
    this.add(t, { seq: e.seq, time: e.time, type: "action", text: "", data: d, id: d.id });
  }
}
