// The terminal of a run: its screen as it is now, then what comes. Looking changes
// nothing; typing is begun and ended by the person.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, key as pageKey, post, query, request, runPath, type Info, type TerminalScreen } from "../api.ts";
import { useActs } from "../keys.ts";
import { loadTerminal, loadWebgl } from "../lazy.ts";
import { Feed } from "../feed.ts";
import { count } from "../format.ts";
import { follow, link, setTyping as sayTyping } from "../link.ts";
import { dark, prefs, recall, remember } from "../prefs.ts";
import { fromJSON } from "../record.ts";
import { route, setQuery } from "../route.ts";
import { may, presence, viewerName } from "../store.ts";
import type { Screen } from "../terminal.ts";
import { attempt, confirm, copy, Icon, Skeleton, toast, Wrong } from "../ui.tsx";
import { LookBack, type Player } from "./lookback.tsx";

const windowBytes = 1 << 20;
const smallestFont = 6;
const behindBytes = 128 << 10; // with more to draw, a key that interrupts goes before it
const interrupts = /[\x03\x1a\x1c]/; // Ctrl-C, Ctrl-Z, Ctrl-\

/** Connection is how bytes come and go. */
interface Connection {
  send(text: string): void;
  /** renew begins again with the screen of now, and leaves out what leads to it. */
  renew(): void;
  resize(rows: number, cols: number): void;
  close(): void;
}

interface Events {
  info(live: boolean): void;
  screen(rows: number, cols: number): void; // what follows draws it
  bytes(b: Uint8Array, shown: () => void): void;
  resized(rows: number, cols: number, by: string): void;
  skipped(from: number, to: number): void;
  open(on: boolean): void;
  problem(text: string): void;
}

/** attach uses the WebSocket of the run, and comes back after it is cut: with the screen
 * of then. */
function attach(run: string, on: Events): Connection {
  let ws: WebSocket | null = null;
  let stopped = false;
  let failures = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let held: string[] | null = null; // keys for a connection that is renewed
  const dial = () => {
    const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${runPath(run)}/attach${query({ screen: true, skip: true, window: windowBytes })}`;
    const mine = new WebSocket(url, ["spool.attach.v1", "spool-key." + pageKey.get()]);
    ws = mine;
    mine.binaryType = "arraybuffer";
    mine.onopen = () => {
      failures = 0;
      for (const text of held ?? []) mine.send(new TextEncoder().encode(text));
      held = null;
      on.open(true);
    };
    mine.onmessage = m => {
      if (ws !== mine) return;
      if (typeof m.data !== "string") {
        const b = new Uint8Array(m.data as ArrayBuffer);
        on.bytes(b, () => mine.readyState === WebSocket.OPEN && mine.send(JSON.stringify({ ack: b.length })));
        return;
      }
      const f = JSON.parse(m.data);
      if (f.info) on.info(f.info.state !== "closed");
      if (f.screen) on.screen(f.screen.rows, f.screen.cols);
      if (f.resized) on.resized(f.resized.rows, f.resized.cols, f.resized.by ?? "");
      if (f.skipped) on.skipped(f.skipped.from, f.skipped.to);
      if (f.problem) on.problem(f.problem.detail || f.problem.title);
      if (f.end?.reason === "closed") stopped = true;
    };
    mine.onclose = e => {
      if (ws !== mine) return;
      ws = null;
      held = null;
      on.open(false);
      if (e.code === 1000) stopped = true;
      if (e.code >= 4400 && e.code < 4500 && e.code !== 4429) {
        stopped = true;
        on.problem(e.reason || "The terminal cannot be shown.");
      }
      if (!stopped) timer = setTimeout(dial, Math.min(15_000, 300 * 2 ** Math.min(failures++, 6)));
    };
  };
  dial();
  return {
    // Keys that are typed while the connection is lost are dropped: typed into the void
    // they are dangerous.
    send: text => {
      if (held) held.push(text);
      else if (ws?.readyState === WebSocket.OPEN) ws.send(new TextEncoder().encode(text));
    },
    renew: () => {
      if (ws?.readyState !== WebSocket.OPEN) return;
      const old = ws;
      held = [];
      dial();
      old.close();
    },
    resize: (rows, cols) => ws?.readyState === WebSocket.OPEN && ws.send(JSON.stringify({ resize: { rows, cols } })),
    close: () => {
      stopped = true;
      clearTimeout(timer);
      ws?.close();
      ws = null;
    },
  };
}

/** read uses requests, where WebSockets do not work. */
function read(run: string, on: Events): Connection {
  let stop = () => {};
  let closed = false;
  void (async () => {
    try {
      const s = await get<TerminalScreen>(runPath(run) + "/screen");
      if (closed) return;
      on.open(true);
      on.screen(s.rows, s.cols);
      on.bytes(new TextEncoder().encode(s.ansi ?? ""), () => {});
      stop = follow(run, s.seq, {
        event(e) {
          if (e.kind === "output" && e.bytes) on.bytes(e.bytes, () => {});
          if (e.kind === "resized") on.resized(e.data.rows, e.data.cols, e.data.by ?? "");
          if (e.kind === "closed") on.info(false);
        },
        end: problem => problem && on.problem(problem),
      });
    } catch (e) {
      on.problem(e instanceof Error ? e.message : String(e));
    }
  })();
  // Keys go one request after the other.
  let sending = Promise.resolve();
  return {
    send: text => {
      sending = sending.then(() => request("POST", runPath(run) + "/input", { bytes: new TextEncoder().encode(text) }).then(() => {}, e => on.problem(e.message)));
    },
    renew: () => {},
    resize: (rows, cols) => void attempt(() => post(runPath(run) + "/control", { op: "resize", size: { rows, cols } })),
    close: () => {
      closed = true;
      stop();
    },
  };
}

export function Terminal({ info }: { info: Info }) {
  const box = useRef<HTMLDivElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen | null>(null);
  const connection = useRef<Connection | null>(null);
  const feed = useRef<Feed | null>(null);
  const size = useRef({ rows: info.size?.rows ?? 24, cols: info.size?.cols ?? 80 });
  const [ready, setReady] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [open, setOpen] = useState(false);
  const [typing, setTyping] = useState(false);
  const [resized, setResized] = useState("");
  const [skipped, setSkipped] = useState<[number, number] | null>(null);
  const others = (presence.value.get(info.id) ?? []).filter(v => !v.self && v.role === "type");
  const [fit, setFit] = useState(recall("fit-" + info.id) === "1");
  const [text, setText] = useState<string[] | null>(null);
  const [ctrl, setCtrl] = useState(false);
  const [alt, setAlt] = useState(false);
  const typingNow = useRef(false);
  const held = useRef({ ctrl, alt });
  held.current = { ctrl, alt };
  const live = info.state !== "closed";
  const asked = Number(route.value.query.get("at") ?? "");
  const [at, setAt] = useState<number | null>(asked > 0 ? asked : null);
  const back = at !== null; // what is shown is not what is
  const looking = useRef(back);
  const move = (seq: number | null) => {
    looking.current = seq !== null;
    setAt(seq);
  };
  const canType = live && !back && may("runs:input");
  const rung = link.value.rung;

  const type = (on: boolean) => {
    if (on && !canType) return;
    typingNow.current = on;
    setTyping(on);
    sayTyping(info.id, on);
    screen.current?.setTyping(on);
    if (on) {
      screen.current?.focus();
      if (fit) useMySize();
    } else if (frame.current?.contains(document.activeElement)) (document.activeElement as HTMLElement).blur();
  };

  /** scale makes the font as small as the room demands. */
  const scale = () => {
    const s = screen.current;
    const b = box.current;
    if (!s || !b) return;
    const most = prefs.fontSize.value;
    s.setFont(most);
    const cell = s.cell();
    if (!cell.width) return;
    const room = { width: b.clientWidth - 44, height: b.clientHeight - 44 };
    const by = Math.min(1, room.width / (cell.width * size.current.cols), room.height / (cell.height * size.current.rows));
    if (by < 1) s.setFont(Math.max(smallestFont, Math.floor(most * by * 2) / 2));
  };

  const useMySize = () => {
    const s = screen.current;
    const b = box.current;
    if (!s || !b) return;
    s.setFont(prefs.fontSize.value);
    const cell = s.cell();
    const cols = Math.max(20, Math.floor((b.clientWidth - 56) / cell.width));
    const rows = Math.max(5, Math.floor((b.clientHeight - 48) / cell.height));
    connection.current?.resize(rows, cols);
  };

  const send = (data: string) => {
    if (!typingNow.current) return;
    if (held.current.ctrl && data.length === 1) {
      data = String.fromCharCode(data.toUpperCase().charCodeAt(0) & 31);
      setCtrl(false);
    }
    if (held.current.alt) {
      data = "\x1b" + data;
      setAlt(false);
    }
    connection.current?.send(data);
    if (interrupts.test(data) && (feed.current?.behind ?? 0) > behindBytes) connection.current?.renew();
  };

  const paste = async (given?: string) => {
    const t = given ?? (await navigator.clipboard.readText().catch(() => ""));
    const s = screen.current;
    if (!t || !s) return;
    const lines = t.replace(/\n$/, "").split("\n").length;
    if (lines > 1 && !s.bracketed())
      confirm(`Paste ${lines} lines?`, <><p>The program takes each line as if you had typed it.</p><pre class="code">{t.slice(0, 2000)}</pre></>, "Paste", () => s.paste(t));
    else s.paste(t);
  };

  useEffect(() => {
    let over = false;
    let asked = recall("clipboard-" + info.id);
    void loadTerminal().then(part => {
      if (over || !frame.current) return;
      const s = part.open(frame.current, {
        ...size.current, font: prefs.fontSize.value, dark: dark(), reader: prefs.screenReader.value,
        data: send,
        key: e => {
          if (e.type !== "keydown") return true;
          const k = e.key.toLowerCase();
          if (e.key === "F6" || (e.ctrlKey && e.shiftKey && e.key === "Escape")) {
            type(false);
            e.preventDefault();
            return false;
          }
          const mod = e.ctrlKey || e.metaKey;
          if (mod && k === "c" && s.selection()) {
            void copy(s.selection());
            s.clearSelection();
            e.preventDefault();
            return false;
          }
          if ((mod && k === "v") || (e.shiftKey && e.key === "Insert")) return false; // the paste event follows
          if (!typingNow.current) {
            if (e.key === "Enter") {
              type(true);
              e.preventDefault();
              e.stopPropagation();
              return false;
            }
            return false;
          }
          return true;
        },
        clipboard: t => {
          const put = () => void copy(t, "The program copied something");
          if (asked === "yes") put();
          else if (asked !== "no")
            confirm("May this program write to your clipboard?", <pre class="code">{t.slice(0, 1000)}</pre>, "Allow for this run", () => {
              asked = "yes";
              remember("clipboard-" + info.id, asked);
              put();
            });
        },
        open: url => confirm("Open this address?", <pre class="code">{url}</pre>, "Open", () => window.open(url, "_blank", "noopener,noreferrer")),
      });
      screen.current = s;
      scale(); // before anybody sees it
      setReady(true);
    }, setError);
    return () => {
      over = true;
      screen.current?.dispose();
      screen.current = null;
    };
  }, [info.id]);

  const player: Player = {
    show: async seq => {
      const s = await get<TerminalScreen>(runPath(info.id) + "/screen" + query({ at: Math.max(1, seq), exact: true }));
      if (!looking.current) return; // it is live again
      size.current = { rows: s.rows, cols: s.cols };
      screen.current?.clear();
      screen.current?.resize(s.rows, s.cols);
      screen.current?.write(s.ansi ?? "");
      scale();
    },
    write: e => {
      const { kind, bytes, data } = fromJSON(e);
      if (kind === "output" && bytes) screen.current?.write(bytes);
      if (kind === "resized") {
        size.current = { rows: data.rows, cols: data.cols };
        screen.current?.resize(data.rows, data.cols);
        scale();
      }
    },
  };
  const replay = (seq: number) => {
    setSkipped(null);
    move(seq);
    void attempt(() => player.show(seq));
  };
  // The address says which moment it is, once nothing moves.
  useEffect(() => {
    const t = setTimeout(() => setQuery({ at: at === null ? "" : String(at) }), 400);
    return () => clearTimeout(t);
  }, [at]);
  useEffect(() => {
    if (ready && at !== null) void player.show(at).catch(() => {});
  }, [ready]);

  useEffect(() => {
    if (!ready) return;
    type(false);
    if (back) return;
    let painted = false;
    const f = (feed.current = new Feed((b, shown) => (screen.current ? screen.current.write(b, shown) : shown())));
    const on: Events = {
      info: alive => !alive && type(false),
      screen: (rows, cols) => {
        f.drop(); // it leads to this screen
        f.push(new TextEncoder().encode("\x1bc"), () => {}); // after what is being drawn
        if (rows === size.current.rows && cols === size.current.cols && painted) return;
        painted = true;
        size.current = { rows, cols };
        screen.current?.resize(rows, cols);
        scale();
      },
      bytes: (b, shown) => f.push(b, shown),
      resized: (rows, cols, by) => f.then(() => {
        const was = size.current;
        size.current = { rows, cols };
        screen.current?.resize(rows, cols);
        scale();
        setResized(`${was.cols}×${was.rows} → ${cols}×${rows}${by ? " by " + by : ""}`);
        setTimeout(() => setResized(""), 5000);
      }),
      skipped: (from, to) => setSkipped(was => [was ? was[0] : from, to]),
      open: setOpen,
      problem: t => toast(t, true),
    };
    const c = rung === "websocket" ? attach(info.id, on) : read(info.id, on);
    connection.current = c;
    return () => {
      connection.current = null;
      f.drop();
      c.close();
    };
  }, [ready, rung, info.id, back]);

  useEffect(() => {
    const watch = new ResizeObserver(() => (typingNow.current && fit ? useMySize() : scale()));
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, [fit, ready]);
  const night = dark();
  useEffect(() => {
    screen.current?.setTheme(night);
    scale();
  }, [night, prefs.fontSize.value]);
  // Who clicks elsewhere has left it. What belongs to the terminal is not elsewhere.
  useEffect(() => {
    if (!typing) return;
    const elsewhere = (e: PointerEvent) => !(e.target as Element).closest?.(".term-view, .phone-keys, .toolbar, dialog") && type(false);
    addEventListener("pointerdown", elsewhere);
    return () => removeEventListener("pointerdown", elsewhere);
  }, [typing]);
  useEffect(() => screen.current?.setReader(prefs.screenReader.value), [prefs.screenReader.value]);

  // Drawing without WebGL always works.
  useEffect(() => {
    if (!ready) return;
    if (!prefs.webgl.value) return screen.current?.accelerate(null);
    let over = false;
    loadWebgl().then(part => over || screen.current?.accelerate(part.WebglAddon)).catch(() => toast("There is no WebGL here: terminals are drawn without it."));
    return () => void (over = true);
  }, [ready, prefs.webgl.value]);

  const textView = async () => {
    if (text) return setText(null);
    await attempt(async () => setText((await get<TerminalScreen>(runPath(info.id) + "/screen" + query({ format: "text", exact: true }))).text ?? []));
  };
  useActs([{ keys: "Enter", text: "Type into the terminal", run: () => type(true) }], canType, ready);

  const phone: [string, string][] = [["Esc", "\x1b"], ["Tab", "\t"]];
  const more: [string, string][] = [["↑", "\x1b[A"], ["↓", "\x1b[B"], ["←", "\x1b[D"], ["→", "\x1b[C"], ["|", "|"], ["/", "/"], ["-", "-"]];
  /** toKeys makes what is typed next go to the terminal. */
  const toKeys = () => {
    if (!typingNow.current) type(true);
    screen.current?.focus();
  };
  const keyButton = ([name, data]: [string, string]) => (
    <button
      key={name}
      onClick={() => {
        toKeys();
        send(data);
      }}
    >
      {name}
    </button>
  );
  return (
    <>
      <div class="toolbar" role="toolbar" aria-label="Terminal">
        {canType && (
          <button aria-pressed={typing} onClick={() => type(!typing)} disabled={!open && !typing}>
            <Icon name="keyboard" /> {typing ? "Typing" : "Type"}
          </button>
        )}
        <span class="hits" role="status">
          {typing ? "F6 leaves" : canType ? "Enter or a click types" : back ? "As it was then" : live ? "You may look, not type" : "As it was at the end"}
          {!open && live && !back && ready && " · connection lost, keys are not taken"}
        </span>
        <span class="grow" />
        {others.length > 0 && (
          <span class="pill waiting" role="status">
            {others.map(viewerName).join(", ")} {others.length > 1 ? "type" : "types"}, too
          </span>
        )}
        {resized && <span class="pill" role="status">{resized}</span>}
        {canType && may("runs:control") && (
          <>
            <button onClick={useMySize} title="The terminal gets the size of this window, for everybody">Use my size</button>
            <button
              aria-pressed={fit}
              title="While you type, the terminal has the size of this window"
              onClick={() => {
                setFit(!fit);
                remember("fit-" + info.id, fit ? "" : "1");
              }}
            >
              Fit to me
            </button>
          </>
        )}
        <button aria-pressed={!!text} onClick={() => void textView()}>Text view</button>
      </div>
      {error !== null && <div class="pane padded"><Wrong error={error} /></div>}
      {text && (
        <pre class="term-text" tabIndex={0} aria-label="The screen as text">{text.join("\n")}</pre>
      )}
      <div class="term-view" hidden={!!text}>
        <div class="term-box" ref={box} onPasteCapture={e => {
          if (!typingNow.current) return;
          e.preventDefault();
          e.stopPropagation();
          void paste(e.clipboardData?.getData("text/plain"));
        }}>
          {!ready && error === null && <div class="term-wait"><Skeleton rows={10} label="Loading the terminal" /></div>}
          <div class={"term" + (typing ? " typing" : "") + (ready ? "" : " unready")} ref={frame} onClick={() => canType && open && !screen.current?.selection() && type(true)} />
        </div>
        {skipped && !back && (
          <div class="skipped" role="status">
            <span>Events {count(skipped[0])} to {count(skipped[1])} were skipped to stay live.</span>
            <button onClick={() => replay(skipped[0])}>Replay them</button>
            <button class="plain" aria-label="Hide this" onClick={() => setSkipped(null)}><Icon name="close" /></button>
          </div>
        )}
      </div>
      {!text && <LookBack info={info} at={at} move={move} player={player} what="What the terminal showed" />}
      {canType && !text && (
        <div class="phone-keys" role="toolbar" aria-label="Keys">
          {phone.map(keyButton)}
          <button aria-pressed={ctrl} onClick={() => { setCtrl(!ctrl); toKeys(); }}>Ctrl</button>
          <button aria-pressed={alt} onClick={() => { setAlt(!alt); toKeys(); }}>Alt</button>
          {more.map(keyButton)}
          <button onClick={() => { if (!typingNow.current) type(true); void paste(); }}>Paste</button>
        </div>
      )}
    </>
  );
}
