// Command lines as words.

/** split takes a command line apart as a shell does, without expanding anything. */
export function split(line: string): string[] {
  const words: string[] = [];
  const word = /((?:[^\s"'\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+)/g;
  for (const m of line.matchAll(word))
    words.push(m[0].replace(/\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)"/g, (_, one: string, single: string, double: string) => one ?? single ?? double.replace(/\\(["\\$`])/g, "$1")));
  return words;
}
