// The text of a log line with its colours: escape sequences become spans, all others
// are dropped, and what carriage returns have drawn over is folded.

export interface Span {
  text: string;
  /** classes of style.css: fg1…fg15, bg0…, bold, dim, italic, underline, strike, inverse. */
  cls: string;
  fg?: string; // a colour that has no class
  bg?: string;
  href?: string;
  file?: string; // PATH:LINE or PATH:LINE:COLUMN
}

export interface Row {
  spans: Span[];
  plain: string;
  updates: number; // how often a progress bar drew over the line
}

interface Style {
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  strike: boolean;
  inverse: boolean;
  fg: string;
  bg: string;
}

const none = (): Style => ({ bold: false, dim: false, italic: false, underline: false, strike: false, inverse: false, fg: "", bg: "" });

// CSI, OSC and the like, and two-character escapes.
const escapes = /\x1b(?:\[([0-?]*)[ -/]*(?:([@-~])|$|(?=[^ -~]))|[\]PX^_](?:[^\x07\x1b]|\x1b(?!\\))*(?:\x07|\x1b\\|$)|[ -/]*[0-Z\\`-~]|$)|\x9b([0-?]*)[ -/]*([@-~]|$)/g;
const controls = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;
// Characters that change the direction of what follows are shown, not obeyed.
const tricks = /[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/g;
// Addresses, and files of sources with a line.
const files = String.raw`(?<![\w.@~+/-])(?:[\w.@~+-]*/)*[\w.@+-]+\.(?:[cm]?[jt]sx?|go|py|rs|c|cc|cpp|h|hpp|java|kt|rb|php|cs|swift|sh|sql|lua|zig|exs?|erl|hs|ml|scala|vue|svelte|html|css|json|ya?ml|toml|md|txt|proto|tf):\d{1,7}(?::\d{1,5})?\b`;
const traces = String.raw`File "([^"\x00-\x1f]{1,400})", line (\d{1,7})`;
const links = /\bhttps?:\/\/[^\s<>"'`\x00-\x1f]+[^\s<>"'`.,;:!?)\]}\x00-\x1f]/g;
const places = new RegExp(`(${links.source})|${traces}|${files}`, "g");

/** visible makes text harmless: no controls, no changes of direction. */
export function visible(text: string): string {
  return text.replace(controls, "").replace(tricks, c => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase()}⟩`);
}

/** fold returns what a line shows after its carriage returns, and how many there were. */
export function fold(text: string): { text: string; updates: number } {
  if (!text.includes("\r")) return { text, updates: 0 };
  const parts = text.replace(/\r+$/, "").split("\r");
  for (let i = parts.length - 1; i >= 0; i--) {
    if (parts[i]!.replace(escapes, "").trim() !== "") return { text: parts[i]!, updates: parts.length - 1 };
  }
  return { text: "", updates: parts.length - 1 };
}

function palette(n: number): string {
  if (n < 16) return "fg" + n;
  if (n < 232) {
    n -= 16;
    const level = (v: number) => (v === 0 ? 0 : 55 + v * 40);
    return `rgb(${level(Math.floor(n / 36))} ${level(Math.floor(n / 6) % 6)} ${level(n % 6)})`;
  }
  const g = 8 + (n - 232) * 10;
  return `rgb(${g} ${g} ${g})`;
}

function apply(style: Style, params: string) {
  const p = params.replaceAll(":", ";").split(";").map(s => Number(s || 0));
  for (let i = 0; i < p.length; i++) {
    const n = p[i]!;
    if (n === 0) Object.assign(style, none());
    else if (n === 1) style.bold = true;
    else if (n === 2) style.dim = true;
    else if (n === 3) style.italic = true;
    else if (n === 4) style.underline = true;
    else if (n === 7) style.inverse = true;
    else if (n === 9) style.strike = true;
    else if (n === 22) style.bold = style.dim = false;
    else if (n === 23) style.italic = false;
    else if (n === 24) style.underline = false;
    else if (n === 27) style.inverse = false;
    else if (n === 29) style.strike = false;
    else if (n >= 30 && n <= 37) style.fg = "fg" + (n - 30);
    else if (n === 39) style.fg = "";
    else if (n >= 40 && n <= 47) style.bg = "fg" + (n - 40);
    else if (n === 49) style.bg = "";
    else if (n >= 90 && n <= 97) style.fg = "fg" + (n - 82);
    else if (n >= 100 && n <= 107) style.bg = "fg" + (n - 92);
    else if (n === 38 || n === 48) {
      let colour = "";
      if (p[i + 1] === 5) {
        colour = palette(Math.min(255, p[i + 2] ?? 0));
        i += 2;
      } else if (p[i + 1] === 2) {
        const [r, g, b] = [p[i + 2] ?? 0, p[i + 3] ?? 0, p[i + 4] ?? 0].map(v => Math.min(255, Math.max(0, v)));
        colour = `rgb(${r} ${g} ${b})`;
        i += 4;
      } else break;
      if (n === 38) style.fg = colour;
      else style.bg = colour;
    }
  }
}

function span(text: string, style: Style): Span {
  const cls: string[] = [];
  for (const name of ["bold", "dim", "italic", "underline", "strike", "inverse"] as const) if (style[name]) cls.push(name);
  const s: Span = { text, cls: "" };
  if (style.fg.startsWith("fg")) cls.push(style.fg);
  else if (style.fg) s.fg = style.fg;
  if (style.bg.startsWith("fg")) cls.push("b" + style.bg.slice(1));
  else if (style.bg) s.bg = style.bg;
  s.cls = cls.join(" ");
  return s;
}

/** linked splits a span at the addresses in it. */
function linked(s: Span, to: Span[]) {
  let at = 0;
  for (const m of s.text.matchAll(places)) {
    if (m.index > at) to.push({ ...s, text: s.text.slice(at, m.index) });
    if (m[1]) to.push({ ...s, text: m[0], href: m[0] });
    else to.push({ ...s, text: m[0], file: m[2] ? `${m[2]}:${m[3]}` : m[0] });
    at = m.index + m[0].length;
  }
  if (at < s.text.length) to.push(at === 0 ? s : { ...s, text: s.text.slice(at) });
}

/** parse makes the spans of a line. */
export function parse(line: string): Row {
  const { text, updates } = fold(line);
  const spans: Span[] = [];
  const style = none();
  let plain = "";
  const add = (raw: string) => {
    const t = visible(raw);
    if (!t) return;
    plain += t;
    linked(span(t, style), spans);
  };
  let at = 0;
  if (text.includes("\x1b") || text.includes("\x9b")) {
    for (const m of text.matchAll(escapes)) {
      add(text.slice(at, m.index));
      at = m.index + m[0].length;
      if ((m[2] ?? m[4]) === "m") apply(style, m[1] ?? m[3] ?? "");
    }
  }
  add(text.slice(at));
  return { spans, plain, updates };
}

/** structured is the JSON that a line ends with, if it is an object or a list. */
export function structured(plain: string): unknown {
  if (plain.length > 50_000 || !/[}\]]\s*$/.test(plain)) return undefined;
  const start = plain.search(/[{[]/);
  if (start < 0 || start > 200) return undefined;
  try {
    const value: unknown = JSON.parse(plain.slice(start));
    return typeof value === "object" && value !== null && Object.keys(value).length > 0 ? value : undefined;
  } catch {
    return undefined;
  }
}
