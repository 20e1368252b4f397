// Markdown as a tree of nodes; no markup ever exists as text. Loaded when it is needed.
import { lexer, type Token, type Tokens } from "marked";

/** Node is a piece of text, or an element with pieces. */
export type Node = string | { tag: string; attrs?: Record<string, string>; children: Node[] };

const safe = /^(https?:|mailto:)/i;

function entities(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|#39);/g, (_, n: string) => ({ amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" })[n] ?? "");
}

function many(tokens: Token[] | undefined): Node[] {
  return (tokens ?? []).flatMap(one);
}

function one(t: Token): Node[] {
  switch (t.type) {
    case "space":
    case "def":
      return [];
    case "heading":
      return [{ tag: "h" + Math.min(6, (t as Tokens.Heading).depth + 2), children: many(t.tokens) }];
    case "paragraph":
      return [{ tag: "p", children: many(t.tokens) }];
    case "text":
      return t.tokens ? many(t.tokens) : [entities(t.text)];
    case "escape":
      return [entities(t.text)];
    case "strong":
      return [{ tag: "strong", children: many(t.tokens) }];
    case "em":
      return [{ tag: "em", children: many(t.tokens) }];
    case "del":
      return [{ tag: "s", children: many(t.tokens) }];
    case "codespan":
      return [{ tag: "code", children: [entities(t.text)] }];
    case "code":
      return [{ tag: "pre", attrs: { tabIndex: "0" }, children: [{ tag: "code", children: [t.text] }] }];
    case "br":
      return [{ tag: "br", children: [] }];
    case "hr":
      return [{ tag: "hr", children: [] }];
    case "blockquote":
      return [{ tag: "blockquote", children: many(t.tokens) }];
    case "list": {
      const l = t as Tokens.List;
      return [{ tag: l.ordered ? "ol" : "ul", attrs: l.ordered && l.start !== 1 ? { start: String(l.start) } : {}, children: l.items.map(i => ({ tag: "li", children: [...(i.task ? [i.checked ? "☑ " : "☐ "] : []), ...many(i.tokens)] })) }];
    }
    case "checkbox":
      return [];
    case "table": {
      const table = t as Tokens.Table;
      const cells = (row: Tokens.TableCell[], tag: string): Node => ({ tag: "tr", children: row.map(c => ({ tag, children: many(c.tokens) })) });
      return [{ tag: "table", children: [{ tag: "thead", children: [cells(table.header, "th")] }, { tag: "tbody", children: table.rows.map(r => cells(r, "td")) }] }];
    }
    case "link": {
      const l = t as Tokens.Link;
      const inside = many(l.tokens);
      if (!safe.test(l.href)) return [...inside, l.href && l.href !== l.text ? ` (${l.href})` : ""];
      return [{ tag: "a", attrs: { href: l.href, target: "_blank", rel: "noopener noreferrer", title: l.href }, children: inside }];
    }
    case "image": {
      // A picture is never fetched: it would tell others that somebody reads this.
      const i = t as Tokens.Image;
      return [{ tag: "code", children: [`image: ${i.text || ""} ${i.href}`] }];
    }
  }
  return ["raw" in t ? String(t.raw) : ""]; // HTML is text
}

/** nodes are the nodes of a Markdown text. */
export function nodes(text: string): Node[] {
  return many(lexer(text, { gfm: true }));
}
