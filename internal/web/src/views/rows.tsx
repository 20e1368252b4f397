// A list of lines of any length: only the rows in view exist. The scrollbar is exact; a
// list that is too tall for a browser is scrolled by lines.
import { Component, createRef, type ComponentChild } from "preact";
import type { Line } from "../api.ts";
import { clock, duration, fine } from "../format.ts";
import type { Lines } from "../lines.ts";
import { parse, structured, type Row as Parsed, type Span } from "../sgr.ts";

const tallest = 8_000_000; // pixels; browsers cannot do much more
const steady = 4096; // rows among which each has a place of its own

export interface Props {
  /** handle gets the list, for its owner to move it. */
  handle: { current: Rows | null };
  lines: Lines;
  version: number; // of the lines
  rowHeight: number;
  wrap: boolean;
  times: string;
  created: string; // of the run
  label: string;
  selected: [number, number] | null; // line numbers
  found: RegExp | null;
  foundAt: number; // the line of the hit that is shown
  marks: number[]; // rows, as parts of all
  /** start is where the list begins: at a row, or at its end. */
  start: number | "end";
  moved(atEnd: boolean, first: number, last: number): void;
  pick(n: number, extend: boolean): void;
  /** unfold shows the JSON of a line. */
  unfold(n: number, value: unknown): void;
  /** visit opens a file: PATH:LINE. */
  visit(file: string): void;
}

interface Shown extends Parsed {
  json: boolean;
}

const parsed = new WeakMap<Line, Shown>();
function parsedOf(line: Line): Shown {
  let p = parsed.get(line);
  if (!p) {
    const row = parse(line.text);
    parsed.set(line, (p = { ...row, json: structured(row.plain) !== undefined }));
  }
  return p;
}

/** jsonOf is the JSON of a line, if it has some. */
export const jsonOf = (line: Line | undefined): unknown => (line && parsedOf(line).json ? structured(parsedOf(line).plain) : undefined);

interface State {
  row: number;
  px: number; // of the row that are above the view
  end: boolean; // the last row is at the bottom
  height: number; // of the view
}

export class Rows extends Component<Props, State> {
  override state: State;
  private readonly scroll = createRef<HTMLDivElement>();
  private readonly rows = createRef<HTMLDivElement>();
  private heights = new Map<number, number>();
  private expected = 0;
  private observer: ResizeObserver | undefined;
  private touchY = 0;
  private speed = 0;

  constructor(p: Props) {
    super(p);
    this.state = { row: typeof p.start === "number" ? p.start : 0, px: 0, end: p.start === "end", height: 400 };
  }

  override componentDidMount() {
    const s = this.scroll.current!;
    this.props.handle.current = this;
    this.observer = new ResizeObserver(() => {
      this.heights.clear();
      this.setState({ height: s.clientHeight });
    });
    this.observer.observe(s);
    s.addEventListener("wheel", this.wheel, { passive: false });
    s.addEventListener("touchmove", this.touch, { passive: false });
    this.setState({ height: s.clientHeight });
  }

  override componentWillUnmount() {
    if (this.props.handle.current === this) this.props.handle.current = null;
    this.observer?.disconnect();
    cancelAnimationFrame(this.speed);
  }

  override componentDidUpdate(before: Props) {
    if (before.rowHeight !== this.props.rowHeight || before.wrap !== this.props.wrap) this.heights.clear();
    this.place();
    const { first, row, last } = this.range();
    this.props.lines.need(first, last);
    this.props.moved(this.state.end, row, last);
  }

  private get count() {
    return this.props.lines.count();
  }

  /** stretched is whether the scrollbar does not count pixels of rows. */
  private get stretched() {
    return this.props.wrap || this.count * this.props.rowHeight > tallest;
  }

  private get virtual() {
    return Math.min(this.count * this.props.rowHeight, tallest);
  }

  private range() {
    const visible = Math.ceil(this.state.height / this.props.rowHeight) + 1;
    const over = this.props.wrap ? 20 : 8;
    const row = this.state.end ? Math.max(0, this.count - visible) : this.state.row;
    return { first: Math.max(0, row - over), row, last: Math.min(this.count, row + visible + over), visible };
  }

  /** above is the room of rows that do not exist, so that a row stays where it is laid out
   * while others come and go: only the layer moves. */
  private above(first: number) {
    return this.props.wrap ? 0 : (first % steady) * this.props.rowHeight;
  }

  /** place puts the rows and the scrollbar where they belong. */
  private place() {
    const s = this.scroll.current;
    const box = this.rows.current;
    if (!s || !box) return;
    const { first, row } = this.range();
    if (this.props.wrap) for (const e of box.children) this.heights.set(Number((e as HTMLElement).dataset["row"]), (e as HTMLElement).offsetHeight);
    let y: number;
    if (this.state.end) y = Math.min(0, this.state.height - box.offsetHeight);
    else if (this.props.wrap) y = -this.state.px - ((box.children[row - first] as HTMLElement | undefined)?.offsetTop ?? 0);
    else y = -this.state.px - (row - first) * this.props.rowHeight - this.above(first);
    // Nothing is left empty below the last row.
    if (!this.state.end && first + box.children.length >= this.count) {
      const gap = this.state.height - (box.offsetHeight + y);
      if (gap > 0 && box.offsetHeight > this.state.height) y += gap;
      else if (gap > 0 && first === 0) y = Math.min(0, y + gap);
    }
    box.style.transform = `translateY(${Math.round(y)}px)`; // between pixels, text is blurred
    const most = s.scrollHeight - s.clientHeight;
    let want: number;
    if (this.state.end) want = most;
    else if (this.stretched) want = this.count > 1 ? (most * (row + this.state.px / this.props.rowHeight)) / Math.max(1, this.count - this.state.height / this.props.rowHeight) : 0;
    else want = row * this.props.rowHeight + this.state.px;
    want = Math.max(0, Math.min(most, want));
    if (Math.abs(s.scrollTop - want) >= 1) s.scrollTop = want;
    this.expected = s.scrollTop;
  }

  private scrolled = () => {
    const s = this.scroll.current!;
    if (Math.abs(s.scrollTop - this.expected) < 2) return;
    const most = s.scrollHeight - s.clientHeight;
    this.expected = s.scrollTop;
    if (s.scrollTop >= most - 2) return this.setState({ end: true });
    if (!this.stretched) {
      const row = Math.floor(s.scrollTop / this.props.rowHeight);
      return this.setState({ row, px: s.scrollTop - row * this.props.rowHeight, end: false });
    }
    const at = (s.scrollTop / most) * Math.max(0, this.count - this.state.height / this.props.rowHeight);
    this.setState({ row: Math.floor(at), px: (at % 1) * this.props.rowHeight, end: false });
  };

  private heightOf(row: number) {
    return this.heights.get(row) ?? this.props.rowHeight;
  }

  /** by moves the view by pixels of rows. */
  by(dy: number) {
    let { row, px } = this.state;
    if (this.state.end) {
      if (dy >= 0) return;
      // Where the view is now, from its end.
      let left = this.state.height;
      row = this.count;
      while (row > 0 && left > 0) left -= this.heightOf(--row);
      px = -left;
      if (left > 0) return; // everything is in view
    }
    px += dy;
    while (px < 0 && row > 0) px += this.heightOf(--row);
    if (px < 0) px = 0;
    while (row < this.count - 1 && px >= this.heightOf(row)) px -= this.heightOf(row++);
    let below = -px;
    for (let r = row; r < this.count && below < this.state.height; r++) below += this.heightOf(r);
    this.setState({ row, px, end: dy > 0 && below < this.state.height });
  }

  /** jump shows a row, a third down the view. */
  jump(row: number) {
    const above = Math.floor(this.state.height / this.props.rowHeight / 3);
    const first = Math.max(0, row - above);
    const fits = this.count - first <= this.state.height / this.props.rowHeight;
    this.setState({ row: first, px: 0, end: fits && this.count > 0 && row >= this.count - 1 });
  }

  toEnd() {
    this.setState({ end: true });
  }

  toStart() {
    this.setState({ row: 0, px: 0, end: false });
  }

  focus() {
    this.scroll.current?.focus();
  }

  private wheel = (e: WheelEvent) => {
    if (!this.stretched || e.shiftKey || e.ctrlKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) return;
    e.preventDefault();
    this.by(e.deltaMode === 1 ? e.deltaY * this.props.rowHeight : e.deltaMode === 2 ? e.deltaY * this.state.height : e.deltaY);
  };

  private touch = (e: TouchEvent) => {
    if (!this.stretched || e.touches.length !== 1) return;
    const y = e.touches[0]!.clientY;
    const dy = this.touchY - y;
    this.touchY = y;
    if (e.cancelable) e.preventDefault();
    this.by(dy);
    cancelAnimationFrame(this.speed);
    let v = dy;
    const glide = () => {
      v *= 0.95;
      if (Math.abs(v) < 0.5) return;
      this.by(v);
      this.speed = requestAnimationFrame(glide);
    };
    this.speed = requestAnimationFrame(() => (this.speed = requestAnimationFrame(glide)));
  };

  private key = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const page = this.state.height - this.props.rowHeight * 2;
    const steps: Record<string, number> = { ArrowUp: -this.props.rowHeight, ArrowDown: this.props.rowHeight, PageUp: -page, PageDown: page };
    if (e.key in steps) this.by(steps[e.key]!);
    else if (e.key === "Home") this.toStart();
    else if (e.key === "End") this.toEnd();
    else return;
    e.preventDefault();
  };

  render() {
    const p = this.props;
    const { first, last } = this.range();
    const rows = [];
    let before: Line | undefined = p.times === "delta" && first > 0 ? p.lines.at(first - 1) : undefined;
    for (let i = first; i < last; i++) {
      const line = p.lines.at(i);
      rows.push(
        <RowView
          key={i}
          row={i}
          line={line}
          note={line ? undefined : p.lines.note?.(i)}
          time={line ? timeOf(line, p.times, p.created, before) : ""}
          selected={!!line && !!p.selected && line.n >= p.selected[0] && line.n <= p.selected[1]}
          found={p.found}
          foundAt={!!line && line.n === p.foundAt}
          pick={p.pick}
        />,
      );
      before = line;
    }
    return (
      <>
        <div
          class="log-scroll"
          ref={this.scroll}
          tabIndex={0}
          role="region"
          aria-label={p.label}
          onScroll={this.scrolled}
          onKeyDown={this.key}
          onTouchStart={e => {
            this.touchY = e.touches[0]?.clientY ?? 0;
            cancelAnimationFrame(this.speed);
          }}
        >
          <div class="log-layer" style={{ "--digits": String(Math.max(3, String(this.count).length)) }}>
            <div
              class="log-rows"
              ref={this.rows}
              style={{ paddingTop: this.above(first) + "px" }}
              onClick={e => {
                const at = (e.target as Element).closest<HTMLElement>("[data-file], [data-json]");
                if (at?.dataset["file"]) p.visit(at.dataset["file"]);
                else if (at) {
                  const line = p.lines.at(Number(at.closest<HTMLElement>(".row")?.dataset["row"]));
                  if (line) p.unfold(line.n, jsonOf(line));
                }
              }}
            >
              {rows}
            </div>
          </div>
          <div style={{ height: this.virtual + "px", width: "1px" }} />
        </div>
        {p.marks.length > 0 && (
          <div class="marks" aria-hidden="true">
            {p.marks.map(m => (
              <i key={m} style={{ top: `${m * 100}%` }} />
            ))}
          </div>
        )}
      </>
    );
  }
}

function timeOf(line: Line, how: string, created: string, before: Line | undefined): string {
  switch (how) {
    case "clock":
      return fine(line.t);
    case "since":
      return "+" + duration(Date.parse(line.t) - Date.parse(created));
    case "delta":
      return before ? "+" + duration(Date.parse(line.t) - Date.parse(before.t)) : clock(line.t);
  }
  return "";
}

interface RowProps {
  row: number;
  line: Line | undefined;
  note: string | undefined; // of a row that is no line
  time: string;
  selected: boolean;
  found: RegExp | null;
  foundAt: boolean;
  pick(n: number, extend: boolean): void;
}

class RowView extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps) {
    const p = this.props;
    return p.line !== next.line || p.note !== next.note || p.time !== next.time || p.selected !== next.selected || p.found !== next.found || p.foundAt !== next.foundAt;
  }

  render({ row, line, note, time, selected, found, foundAt, pick }: RowProps) {
    if (note !== undefined)
      return (
        <div class="row gap" data-row={row} role="note">
          <span class="n" />
          <span class="x">{note}</span>
        </div>
      );
    if (!line)
      return (
        <div class="row" data-row={row}>
          <span class="n">{row + 1}</span>
          <span class="ghost" />
        </div>
      );
    const p = parsedOf(line);
    return (
      <div class={"row" + (selected ? " at" : "")} data-row={row}>
        <a
          class="n"
          href={`?view=log&line=${line.n}`}
          tabIndex={-1}
          aria-label={line.n > 0 ? `Line ${line.n}` : "A line near the end"}
          onClick={e => {
            if (e.ctrlKey || e.metaKey) return;
            e.preventDefault();
            if (line.n > 0) pick(line.n, e.shiftKey);
          }}
        >
          {line.n > 0 ? line.n : ""}
        </a>
        {time && <span class="t">{time}</span>}
        <span class="s" title={line.s === "e" ? "standard error" : undefined}>
          {line.s === "e" ? "e" : ""}
        </span>
        <span class="x">
          {found ? marked(p, found, foundAt) : p.spans.map(shown)}
          {line.cut && <span class="updates">… this line is longer</span>}
          {line.open && p.plain === "" && " "}
        </span>
        {p.json && (
          <button class="updates" data-json tabIndex={-1} aria-label={`Unfold line ${line.n}`}>
            ▸ JSON
          </button>
        )}
        {p.updates > 0 && <span class="updates">▸ {p.updates} updates</span>}
      </div>
    );
  }
}

function shown(s: Span, key: number) {
  const style = s.fg || s.bg ? { ...(s.fg && { color: s.fg }), ...(s.bg && { background: s.bg }) } : undefined;
  if (s.href)
    return (
      <a key={key} class={s.cls} style={style} href={s.href} target="_blank" rel="noopener noreferrer">
        {s.text}
      </a>
    );
  if (s.file)
    return (
      <button key={key} class={"file " + s.cls} style={style} data-file={s.file} title="Open this file">
        {s.text}
      </button>
    );
  if (!s.cls && !style) return s.text;
  return (
    <span key={key} class={s.cls} style={style}>
      {s.text}
    </span>
  );
}

/** marked is a line with what was found in it. */
function marked(p: Parsed, found: RegExp, at: boolean) {
  const ranges: [number, number][] = [];
  for (const m of p.plain.matchAll(found)) {
    if (m[0]) ranges.push([m.index, m.index + m[0].length]);
    if (ranges.length >= 200) break;
  }
  if (ranges.length === 0) return p.spans.map(shown);
  const out: ComponentChild[] = [];
  let start = 0;
  for (const s of p.spans) {
    const end = start + s.text.length;
    let from = start;
    const put = (to: number, hit: boolean) => {
      if (to <= from) return;
      const piece = shown({ ...s, text: s.text.slice(from - start, to - start) }, out.length);
      out.push(hit ? <mark key={out.length} class={at ? "at" : ""}>{piece}</mark> : piece);
      from = to;
    };
    for (const [a, b] of ranges) {
      if (b <= start || a >= end) continue;
      put(Math.max(a, start), false);
      put(Math.min(b, end), true);
    }
    put(end, false);
    start = end;
  }
  return out;
}
