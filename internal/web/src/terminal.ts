// The part of the console that draws terminals, loaded only for them.
import { SearchAddon } from "@xterm/addon-search";
import type { WebglAddon } from "@xterm/addon-webgl";
import { Terminal as XTerm, type ITheme } from "@xterm/xterm";

export interface Screen {
  readonly element: HTMLElement;
  write(bytes: Uint8Array | string, shown?: () => void): void;
  clear(): void;
  resize(rows: number, cols: number): void;
  setFont(px: number): void;
  setTheme(dark: boolean): void;
  setTyping(on: boolean): void;
  setReader(on: boolean): void;
  /** accelerate draws with WebGL as long as that works, or without it again. */
  accelerate(by: typeof WebglAddon | null): void;
  focus(): void;
  selection(): string;
  clearSelection(): void;
  find(text: string, back: boolean): boolean;
  bracketed(): boolean;
  paste(text: string): void;
  cell(): { width: number; height: number };
  dispose(): void;
}

const light: ITheme = {
  background: "#ffffff", foreground: "#1b1f27", cursor: "#3549c4", cursorAccent: "#ffffff", selectionBackground: "#c9d3ff",
  black: "#1b1f27", red: "#b91c1c", green: "#17703a", yellow: "#8a5a00", blue: "#2545c9", magenta: "#9127a8", cyan: "#0b6b7d", white: "#4b5260",
  brightBlack: "#596273", brightRed: "#c51a1a", brightGreen: "#147a3a", brightYellow: "#875800", brightBlue: "#1d4ed8", brightMagenta: "#a21caf", brightCyan: "#0a6a7c", brightWhite: "#2b303a",
};
const night: ITheme = {
  background: "#0f1216", foreground: "#e4e7ec", cursor: "#a3b4ff", cursorAccent: "#0f1216", selectionBackground: "#3a4680",
  black: "#4b5260", red: "#ff8080", green: "#6ad29a", yellow: "#f0c05a", blue: "#8ea8ff", magenta: "#e08ef5", cyan: "#5fd0e3", white: "#cbd2dd",
  brightBlack: "#8c96a8", brightRed: "#ff9c9c", brightGreen: "#8be8b3", brightYellow: "#ffd580", brightBlue: "#adc2ff", brightMagenta: "#f0b3ff", brightCyan: "#94ebf8", brightWhite: "#ffffff",
};

export interface Options {
  rows: number;
  cols: number;
  font: number;
  dark: boolean;
  reader: boolean;
  data(bytes: string): void;
  /** key decides about a key before the terminal does; false keeps it from there. */
  key(e: KeyboardEvent): boolean;
  /** clipboard is called when the program wants to write there. */
  clipboard(text: string): void;
  open(url: string): void;
}

export function open(parent: HTMLElement, o: Options): Screen {
  const term = new XTerm({
    rows: o.rows, cols: o.cols, fontSize: o.font, scrollback: 5000, allowProposedApi: true, disableStdin: true, cursorInactiveStyle: "outline",
    fontFamily: 'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace',
    theme: o.dark ? night : light, screenReaderMode: o.reader, minimumContrastRatio: 4.5, macOptionIsMeta: true, rightClickSelectsWord: false,
    linkHandler: { activate: (_, url) => /^(https?|mailto):/i.test(url) && o.open(url), allowNonHttpProtocols: true },
  });
  const search = new SearchAddon();
  term.loadAddon(search);
  // The clipboard: writing is asked about, reading is refused.
  term.parser.registerOscHandler(52, data => {
    const text = data.slice(data.indexOf(";") + 1);
    if (text && text !== "?") {
      try {
        o.clipboard(new TextDecoder().decode(Uint8Array.from(atob(text), c => c.charCodeAt(0))));
      } catch {
        // no base64
      }
    }
    return true;
  });
  term.open(parent);
  term.attachCustomKeyEventHandler(o.key);
  // What the terminal answers to questions of a program is not typed by anybody: every
  // viewer would answer. Only who types sends anything.
  term.onData(data => !term.options.disableStdin && o.data(data));
  term.onBinary(data => !term.options.disableStdin && o.data(data));
  let webgl: WebglAddon | null = null;
  const plain = () => {
    webgl?.dispose();
    webgl = null;
  };
  return {
    element: parent,
    write: (bytes, shown) => term.write(bytes, shown),
    clear: () => term.reset(),
    resize: (rows, cols) => term.resize(cols, rows),
    setFont: px => void (term.options.fontSize = px),
    setTheme: dark => void (term.options.theme = dark ? night : light),
    setTyping: on => void (term.options.disableStdin = !on),
    setReader: on => void (term.options.screenReaderMode = on),
    accelerate: by => {
      plain();
      if (!by) return;
      const addon = new by();
      addon.onContextLoss(plain); // what it drew is lost with it
      try {
        term.loadAddon((webgl = addon));
      } catch (e) {
        plain();
        throw e;
      }
    },
    focus: () => term.focus(),
    selection: () => term.getSelection(),
    clearSelection: () => term.clearSelection(),
    find: (text, back) => (back ? search.findPrevious(text) : search.findNext(text)),
    bracketed: () => term.modes.bracketedPasteMode,
    paste: text => term.paste(text),
    cell: () => {
      const box = parent.querySelector(".xterm-screen")?.getBoundingClientRect();
      return { width: (box?.width ?? 0) / term.cols, height: (box?.height ?? 0) / term.rows };
    },
    dispose: () => term.dispose(),
  };
}
