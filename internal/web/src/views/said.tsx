// Text that an agent or a program wrote as Markdown.
import { h, type ComponentChild } from "preact";
import { useEffect, useState } from "preact/hooks";
import { loadMarkdown } from "../lazy.ts";
import type { Node } from "../markdown.ts";
import { visible } from "../sgr.ts";

const most = 100_000; // characters that are shown as Markdown

function build(n: Node, key: number): ComponentChild {
  if (typeof n === "string") return visible(n);
  return h(n.tag, { key, ...n.attrs }, n.tag === "br" || n.tag === "hr" ? undefined : n.children.map(build));
}

export function Said({ text }: { text: string }) {
  const [part, setPart] = useState<{ nodes(text: string): Node[] } | null>(null);
  useEffect(() => void loadMarkdown().then(p => setPart(() => p), () => {}), []);
  if (!part || text.length > most) return <div class="said" style={{ whiteSpace: "pre-wrap" }}>{visible(text)}</div>;
  return <div class="said">{part.nodes(text).map(build)}</div>;
}

/** Diff is a unified diff, folded if it is long. */
export function Diff({ text }: { text: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  const [all, setAll] = useState(lines.length <= 200);
  const shown = all ? lines : lines.slice(0, 60);
  return (
    <>
      <pre class="diff" tabIndex={0} aria-label="Changes">
        {shown.map((l, i) => (
          <span key={i} class={l.startsWith("@@") ? "hunk" : l.startsWith("+") ? "add" : l.startsWith("-") ? "del" : "ctx"}>
            {visible(l) || " "}
          </span>
        ))}
      </pre>
      {!all && <button onClick={() => setAll(true)}>Show all {lines.length} lines</button>}
    </>
  );
}
