// Python in colours: pieces of code with what they are. Where it ends too early or is no
// Python at all, the pieces still are the code.

export interface Piece {
  text: string;
  kind: "" | "word" | "string" | "comment" | "number";
}

const most = 50_000; // characters; more is plain
const token =
  /(#[^\n]*)|([rbufRBUF]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|\b(False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)\b|\b(\d[\w.]*)|\w+/g;

export function pieces(code: string): Piece[] {
  if (code.length > most) return [{ text: code, kind: "" }];
  const list: Piece[] = [];
  const add = (text: string, kind: Piece["kind"]) => {
    const last = list.at(-1);
    if (last && last.kind === kind) last.text += text;
    else if (text) list.push({ text, kind });
  };
  let at = 0;
  for (const m of code.matchAll(token)) {
    add(code.slice(at, m.index), "");
    add(m[0], m[1] ? "comment" : m[2] ? "string" : m[3] ? "word" : m[4] ? "number" : "");
    at = m.index + m[0].length;
  }
  add(code.slice(at), "");
  return list;
}
