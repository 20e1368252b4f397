// The lines of a log, by number: blocks that were asked for, few of them kept.
import { signal } from "@preact/signals";
import { get, query, request, runPath, Failure, type Hit, type Line, type LinePage, type LogIndex } from "./api.ts";

/** Lines are what a list of lines shows. Rows are numbered from zero. */
export interface Lines {
  /** changed is another number whenever something has changed. */
  changed: { value: number };
  count(): number;
  /** exact is whether count is the number of all lines there are. */
  exact(): boolean;
  at(row: number): Line | undefined;
  need(from: number, to: number): void;
  error: unknown;
  stop(): void;
}

const blockLines = 400;
const keptBlocks = 64;

/** Whole is a log of any size. */
export class Whole implements Lines {
  changed = signal(0);
  error: unknown = null;
  private total = 0;
  private complete = false;
  private blocks = new Map<number, (Line | undefined)[]>();
  private loading = new Set<number>();
  private tailing = false;
  private again = 0;
  private readonly abort = new AbortController();
  // The last lines of a log whose lines are not counted yet; they have no numbers.
  private loose: Line[] | null = null;

  constructor(private readonly run: string) {}

  count() {
    return this.loose ? this.loose.length : this.total;
  }
  exact() {
    return this.complete && !this.loose;
  }
  at(row: number): Line | undefined {
    if (this.loose) return this.loose[row];
    return this.blocks.get(Math.floor(row / blockLines))?.[row % blockLines];
  }
  stop() {
    this.abort.abort();
  }

  private touch() {
    this.changed.value++;
  }

  private take(page: LinePage) {
    this.error = null;
    if ((page.lines[0]?.n ?? 0) < 0) {
      if (this.complete) return this.touch(); // they are counted by now, and come again
      this.loose = page.lines;
      return this.touch();
    }
    if (this.loose && page.complete) this.loose = null;
    for (const line of page.lines) {
      const b = Math.floor((line.n - 1) / blockLines);
      let block = this.blocks.get(b);
      if (block) this.blocks.delete(b); // the newest is last
      block ??= new Array<Line | undefined>(blockLines);
      this.blocks.set(b, block);
      const old = block[(line.n - 1) % blockLines];
      if (!old || old.open || old.text !== line.text) block[(line.n - 1) % blockLines] = line;
    }
    for (const b of this.blocks.keys()) {
      if (this.blocks.size <= keptBlocks) break;
      this.blocks.delete(b);
    }
    this.total = Math.max(this.total, page.total);
    this.complete = page.complete;
    this.touch();
  }

  private async load(values: Record<string, number>): Promise<LinePage | null> {
    try {
      const page = await get<LinePage>(runPath(this.run) + "/lines" + query(values), { signal: this.abort.signal });
      this.take(page);
      return page;
    } catch (e) {
      if (this.abort.signal.aborted) return null;
      this.error = e;
      this.touch();
      return null;
    }
  }

  need(from: number, to: number) {
    if (to <= from || this.loose) return;
    for (let b = Math.floor(from / blockLines); b <= Math.floor((to - 1) / blockLines); b++) {
      if (b < 0 || this.loading.has(b)) continue;
      const block = this.blocks.get(b);
      let missing = !block;
      if (block) {
        const end = Math.min(to, (b + 1) * blockLines, this.total);
        for (let row = Math.max(from, b * blockLines); row < end && !missing; row++) missing = !block[row % blockLines];
      }
      if (!missing) continue;
      this.loading.add(b);
      void this.load({ from: b * blockLines + 1, count: blockLines }).then(page => {
        // A place without lines must not be asked for again and again.
        if (page) this.loading.delete(b);
        else setTimeout(() => this.loading.delete(b), 1000);
      });
    }
  }

  /** tail loads the end, once at a time; who asks meanwhile is served afterwards. */
  async tail(count: number) {
    this.again = Math.min(blockLines, Math.max(this.again, count));
    if (this.tailing) return;
    this.tailing = true;
    while (this.again > 0 && !this.abort.signal.aborted) {
      const n = this.again;
      this.again = 0;
      if (!(await this.load({ from: -n, count: n, quick: 1 }))) {
        await new Promise(resolve => setTimeout(resolve, 1000));
        this.again = Math.max(this.again, this.abort.signal.aborted || this.refused() ? 0 : n);
      }
    }
    this.tailing = false;
  }

  /** refused is whether the server has answered that it does not give the lines. */
  private refused(): boolean {
    return this.error instanceof Failure && !this.error.lost && this.error.status < 500 && this.error.status !== 429;
  }

  /** measure counts the lines of a log that was not read to its end yet. */
  async measure() {
    while (!this.complete && !this.abort.signal.aborted) {
      try {
        const x = await get<LogIndex>(runPath(this.run) + "/index" + query({ wait_ms: 2000 }), { signal: this.abort.signal });
        this.total = Math.max(this.total, x.lines);
        this.complete = x.complete;
        if (x.complete && this.loose) void this.tail(blockLines); // with numbers
        this.touch();
      } catch (e) {
        if (e instanceof Failure && !e.lost) return;
        await new Promise(resolve => setTimeout(resolve, 1000));
      }
    }
  }

  /** find returns the row of an event or a time. */
  async find(where: { seq: number } | { time: string }): Promise<number> {
    const page = await get<LinePage>(runPath(this.run) + "/lines" + query({ ...where, count: 1 }));
    const line = page.lines[0];
    return line ? line.n - 1 : page.total - 1;
  }
}

/** OneStream is only the lines of one stream, with their numbers in the whole log. */
export class OneStream implements Lines {
  changed = signal(0);
  error: unknown = null;
  private lines: Line[] = [];
  private next = 1;
  private done = false;
  private loading = false;
  private readonly abort = new AbortController();

  constructor(private readonly run: string, private readonly stream: string) {
    void this.more();
  }
  count() {
    return this.lines.length;
  }
  exact() {
    return this.done;
  }
  at(row: number) {
    return this.lines[row];
  }
  need(_: number, to: number) {
    if (to >= this.lines.length - 50) void this.more();
  }
  stop() {
    this.abort.abort();
  }
  /** refresh looks whether there is more. */
  refresh() {
    this.done = false;
    void this.more();
  }
  private async more() {
    if (this.loading || this.done || this.abort.signal.aborted) return;
    this.loading = true;
    try {
      const page = await get<LinePage>(runPath(this.run) + "/lines" + query({ from: this.next, count: 2000, stream: this.stream }), { signal: this.abort.signal });
      while (this.lines.length && page.lines.length && this.lines.at(-1)!.n >= page.lines[0]!.n) this.lines.pop(); // one that was open
      this.lines.push(...page.lines);
      const last = page.lines.at(-1);
      this.next = last ? (last.open ? last.n : last.n + 1) : Math.max(this.next, page.next);
      this.done = page.lines.length === 0 || (last !== undefined && last.n >= page.total);
    } catch (e) {
      if (!this.abort.signal.aborted) this.error = e;
      this.done = true;
    }
    this.loading = false;
    this.changed.value++;
  }
}

/** Found is what a search found, as it comes. */
export class Found implements Lines {
  changed = signal(0);
  error: unknown = null;
  hits: Hit[] = [];
  running = true;
  private readonly abort = new AbortController();

  constructor(run: string, readonly pattern: string, readonly regex: boolean, readonly ignoreCase: boolean) {
    void this.read(runPath(run) + "/search" + query({ q: pattern, mode: regex ? "regex" : "text", ignore_case: ignoreCase }));
  }
  count() {
    return this.hits.length;
  }
  exact() {
    return !this.running && this.hits.length < 1000;
  }
  at(row: number): Line | undefined {
    const h = this.hits[row];
    return h && { n: h.n ?? 0, seq: h.seq, t: h.time, s: h.stream === "stderr" ? "e" : "o", text: h.text };
  }
  need() {}
  stop() {
    this.abort.abort();
  }
  private async read(path: string) {
    try {
      const answer = await request("GET", path, { accept: "application/x-ndjson", signal: this.abort.signal });
      const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n");
        rest = parts.pop()!;
        for (const line of parts) {
          if (!line) continue;
          const hit = JSON.parse(line) as Hit;
          if (hit.n) this.hits.push(hit);
        }
        this.changed.value++;
      }
    } catch (e) {
      if (!this.abort.signal.aborted) this.error = e;
    }
    this.running = false;
    this.changed.value++;
  }

  /** expression matches what was searched for, in text of a line; null if this browser
   * does not understand the pattern. */
  expression(): RegExp | null {
    if (!this.pattern) return null;
    try {
      return new RegExp(this.regex ? this.pattern : this.pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), this.ignoreCase ? "gi" : "g");
    } catch {
      return null;
    }
  }
}
