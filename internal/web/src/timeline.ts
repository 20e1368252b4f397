// A log as a line of time: where each event is, with long silences drawn short.

import type { LogIndex, Mark } from "./api.ts";

/** pointsOf are the places that an index of a log has, and its end. */
export function pointsOf(x: LogIndex): Point[] {
  const points = x.points.map(p => ({ seq: p[0]!, ms: p[1]!, bytes: p[2]! }));
  if (x.last) points.push({ seq: x.last, ms: Math.max(x.last_ms, points.at(-1)?.ms ?? 0), bytes: x.bytes });
  return points;
}

/** apart are marks that can be told from each other, at most one in each of n parts; what
 * went wrong is shown before what did not. */
export function apart(line: Timeline, marks: Mark[], n: number): { mark: Mark; place: number }[] {
  const rank = ["turn", "resized", "end", "truncated", "ask", "failed", "exception"];
  const best = new Map<number, { mark: Mark; place: number }>();
  for (const mark of marks) {
    const place = line.placeOf(mark.seq);
    const at = Math.round(place * n);
    const old = best.get(at);
    if (!old || rank.indexOf(mark.kind) > rank.indexOf(old.mark.kind)) best.set(at, { mark, place });
  }
  return [...best.values()].sort((a, b) => a.place - b.place);
}

/** Point is a place in a log: an event, its time in milliseconds, and the bytes of output
 * before it. */
export interface Point {
  seq: number;
  ms: number;
  bytes: number;
}

const idle = 2000; // milliseconds; a longer silence is drawn as long as this

export class Timeline {
  /** length is the time from the first to the last point, without long silences. */
  readonly length: number;
  private readonly at: number[] = [];

  constructor(readonly points: Point[], readonly skipIdle = true) {
    let sum = 0;
    points.forEach((p, i) => {
      if (i > 0) {
        const gap = Math.max(0, p.ms - points[i - 1]!.ms);
        sum += skipIdle ? Math.min(gap, idle) : gap;
      }
      this.at.push(sum);
    });
    this.length = Math.max(1, sum);
  }

  /** seqAt is the event at a place from 0 to 1. */
  seqAt(place: number): number {
    if (this.points.length === 0) return 0;
    const t = place * this.length;
    let low = 0;
    let high = this.at.length - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.at[mid]! <= t) low = mid;
      else high = mid - 1;
    }
    const a = this.points[low]!;
    const b = this.points[low + 1];
    if (!b || place >= 1) return (place >= 1 ? this.points.at(-1)! : a).seq;
    const span = this.at[low + 1]! - this.at[low]!;
    return span > 0 ? Math.floor(a.seq + ((b.seq - a.seq) * (t - this.at[low]!)) / span) : a.seq;
  }

  /** placeOf is where an event is, from 0 to 1. */
  placeOf(seq: number): number {
    const i = this.points.findLastIndex(p => p.seq <= seq);
    if (i < 0) return 0;
    const a = this.points[i]!;
    const b = this.points[i + 1];
    if (!b) return 1;
    const part = b.seq > a.seq ? (seq - a.seq) / (b.seq - a.seq) : 0;
    return (this.at[i]! + part * (this.at[i + 1]! - this.at[i]!)) / this.length;
  }

  /** timeAt is the time of an event, in milliseconds. */
  timeAt(seq: number): number {
    const i = this.points.findLastIndex(p => p.seq <= seq);
    return this.points[Math.max(0, i)]?.ms ?? 0;
  }

  /** density is how much was written in each of n equal parts, from 0 to 1. */
  density(n: number): number[] {
    const sums = new Array<number>(n).fill(0);
    for (let i = 1; i < this.points.length; i++) {
      const bytes = this.points[i]!.bytes - this.points[i - 1]!.bytes;
      const from = Math.min(n - 1, Math.floor((this.at[i - 1]! / this.length) * n));
      const to = Math.min(n - 1, Math.floor((this.at[i]! / this.length) * n));
      for (let k = from; k <= to; k++) sums[k]! += bytes / (to - from + 1);
    }
    const most = Math.max(1, ...sums);
    return sums.map(s => Math.log1p(s) / Math.log1p(most));
  }
}
