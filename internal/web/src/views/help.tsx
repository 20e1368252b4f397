// All acts with their keys, and a list to choose one from.
import { useState } from "preact/hooks";
import { label } from "../format.ts";
import { acts } from "../keys.ts";
import { go } from "../route.ts";
import { infos } from "../store.ts";
import { status } from "../status.ts";
import { Dialog, overlay } from "../ui.tsx";

const keyName = (keys: string) => keys.replace("ArrowUp", "↑").replace("ArrowDown", "↓").replaceAll("+", " ");
const close = () => (overlay.value = null);

export function openHelp() {
  const list = acts().filter(a => a.keys);
  overlay.value = () => (
    <Dialog title="Keys" close={close}>
      <table class="keys">
        <tbody>
          {list.map(a => (
            <tr key={a.keys + a.text}>
              <td>
                {a.keys.split(" ").map(k => (
                  <kbd key={k}>{keyName(k)}</kbd>
                ))}
              </td>
              <td>{a.text}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="quiet">Keys of one letter can be switched off in the settings.</p>
    </Dialog>
  );
}

export function openPalette() {
  const list = acts().map(a => ({ text: a.text, keys: a.keys, run: a.run }));
  for (const info of [...infos.value.values()].sort((a, b) => b.created.localeCompare(a.created)).slice(0, 200))
    list.push({ text: `${status(info).mark} ${label(info).slice(0, 120)}`, keys: "", run: () => go("/runs/" + info.id) });
  overlay.value = () => <Palette list={list} />;
}

function Palette({ list }: { list: { text: string; keys: string; run: () => void }[] }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const find = (text: string) => {
    const words = text.toLowerCase().split(/\s+/);
    return list.filter(a => words.every(w => a.text.toLowerCase().includes(w))).slice(0, 50);
  };
  const found = find(text);
  const run = (i: number, now = found) => {
    const act = now[i];
    close();
    if (act) setTimeout(act.run);
  };
  return (
    <Dialog title="Go to" close={close}>
      <input
        type="text"
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls="palette"
        aria-activedescendant={found.length ? "palette-" + at : undefined}
        aria-label="Act or run"
        placeholder="An act, or a run"
        value={text}
        onInput={e => {
          setText(e.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={e => {
          if (e.key === "ArrowDown") setAt(Math.min(found.length - 1, at + 1));
          else if (e.key === "ArrowUp") setAt(Math.max(0, at - 1));
          else if (e.key === "Enter") run(e.currentTarget.value === text ? at : 0, find(e.currentTarget.value)); // keys may be faster than the page
          else return;
          e.preventDefault();
        }}
      />
      <ul id="palette" role="listbox" aria-label="Acts and runs" class="palette">
        {found.map((a, i) => (
          <li
            key={a.text + i}
            id={"palette-" + i}
            role="option"
            aria-selected={i === at}
            ref={e => { if (i === at) e?.scrollIntoView({ block: "nearest" }); }}
            onPointerDown={e => e.preventDefault()}
            onClick={() => run(i)}
          >
            <span>{a.text}</span>
            {a.keys && <kbd>{keyName(a.keys)}</kbd>}
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="quiet">Nothing is called that.</p>}
    </Dialog>
  );
}
