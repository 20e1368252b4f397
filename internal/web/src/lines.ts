// The lines of a log, by number: blocks that were asked for, few of them kept.
import { signal } from "@preact/signals";
import { get, query, runPath, Failure, type Hit, type Line, type LinePage, type LogIndex, type RunSearch } from "./api.ts";
import { count, missing } from "./format.ts";

/** Lines are what a list of lines shows. Rows are numbered from zero. */
export interface Lines {
  /** changed is another number whenever something has changed. */
  changed: { value: number };
  count(): number;
  /** exact is whether count is the number of all lines there are. */
  exact(): boolean;
  at(row: number): Line | undefined;
  /** note is what a row says that is no line. */
  note?(row: number): string | undefined;
  need(from: number, to: number): void;
  error: unknown;
  stop(): void;
}

export const blockLines = 400;
export const keptBlocks = 64; // of one log, in a tab
const mostHits = 1000;

/** Note is a row of its own before a line: something is missing there. */
interface Note {
  line: number; // 1, 2, 3 …
  text: string;
}

/** notesOf are the notes about a log, in the order of its lines. */
export function notesOf(x: LogIndex): Note[] {
  const notes: Note[] = x.marks.flatMap(m => (m.truncation && m.line ? [{ line: m.line, text: missing(m.truncation) }] : []));
  if (x.damaged_from) notes.push({ line: x.lines + 1, text: `This log is damaged from event ${count(x.damaged_from)} on. What precedes it is good.` });
  return notes;
}

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
  private notes: Note[] = [];

  constructor(private readonly run: string) {}

  count() {
    return this.loose ? this.loose.length : this.total + this.notes.length;
  }
  /** lines is how many lines there are, without notes. */
  lines() {
    return this.loose ? this.loose.length : this.total;
  }
  exact() {
    return this.complete && !this.loose;
  }
  at(row: number): Line | undefined {
    if (this.loose) return this.loose[row];
    const at = this.place(row);
    return typeof at === "number" ? this.blocks.get(Math.floor(at / blockLines))?.[at % blockLines] : undefined;
  }
  note(row: number): string | undefined {
    const at = this.loose ? 0 : this.place(row);
    return typeof at === "number" ? undefined : at.text;
  }
  /** rowOf is the row of a line. */
  rowOf(n: number): number {
    return n - 1 + (this.loose ? 0 : this.notes.filter(x => x.line <= n).length);
  }
  /** place is what is in a row: a note, or a line, from zero. */
  private place(row: number): Note | number {
    let before = 0;
    for (const note of this.notes) {
      const at = note.line - 1 + before;
      if (row === at) return note;
      if (row < at) break;
      before++;
    }
    return row - before;
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
      if (this.complete) return; // they come again with numbers
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
    const line = (row: number) => {
      const at = this.place(row);
      return typeof at === "number" ? at : at.line - 1;
    };
    [from, to] = [line(from), Math.min(line(to - 1) + 1, Math.max(this.total, 1))];
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
      let page = await this.load({ from: -n, count: n, quick: 1 });
      // Lines that are not counted yet are of no use beside those that are.
      if (page && this.complete && (page.lines[0]?.n ?? 0) < 0) page = await this.load({ from: -n, count: n });
      if (!page) {
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

  /** measure counts the lines of a log, and finds out what is missing in it. */
  async measure() {
    for (let first = true; (first || !this.complete) && !this.abort.signal.aborted; first = false) {
      try {
        const x = await get<LogIndex>(runPath(this.run) + "/index" + query({ wait_ms: 2000 }), { signal: this.abort.signal });
        this.total = Math.max(this.total, x.lines);
        this.complete = x.complete;
        this.notes = notesOf(x);
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
    return this.rowOf(page.lines[0]?.n ?? page.total);
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
  read = 0; // bytes of the log
  private readonly abort = new AbortController();

  constructor(private readonly run: string, readonly pattern: string, readonly regex: boolean, readonly ignoreCase: boolean) {
    void this.search();
  }
  count() {
    return this.hits.length;
  }
  exact() {
    return !this.running && this.hits.length < mostHits;
  }
  at(row: number): Line | undefined {
    const h = this.hits[row];
    return h && { n: h.n ?? 0, seq: h.seq, t: h.time, s: h.stream === "stderr" ? "e" : "o", text: h.text };
  }
  need() {}
  stop() {
    this.abort.abort();
  }
  /** search takes one page of hits after the other. The first ones come soon, because
   * their page is small; another one takes about two seconds at most. */
  private async search() {
    try {
      for (let cursor = "", limit = 20; this.hits.length < mostHits; limit = mostHits) {
        const path = query({ q: this.pattern, mode: this.regex ? "regex" : "text", ignore_case: this.ignoreCase, cursor, limit: Math.min(limit, mostHits - this.hits.length) });
        const page = await get<RunSearch>(runPath(this.run) + "/search" + path, { signal: this.abort.signal });
        this.hits.push(...page.hits.filter(h => h.n));
        this.read += page.read_bytes;
        this.changed.value++;
        if (!page.next) break;
        cursor = page.next;
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
