// JSON of a line, unfolded.
import { commandLine } from "../format.ts";
import { visible } from "../sgr.ts";
import { copy, Dialog, overlay } from "../ui.tsx";

const most = 500; // members that are shown of one object or list

function Value({ name, value, open }: { name: string; value: unknown; open: boolean }) {
  const label = name && <span class="key">{visible(name)}: </span>;
  if (typeof value !== "object" || value === null) {
    const kind = value === null ? "null" : typeof value;
    return <div class="leaf">{label}<span class={"json-" + kind}>{visible(kind === "string" ? String(value) : JSON.stringify(value))}</span></div>;
  }
  const members = Object.entries(value);
  const list = Array.isArray(value);
  return (
    <details open={open}>
      <summary>{label}<span class="quiet">{list ? `[${members.length}]` : `{${members.length}}`}</span></summary>
      {members.slice(0, most).map(([k, v]) => <Value key={k} name={k} value={v} open={false} />)}
      {members.length > most && <p class="quiet">and {members.length - most} more</p>}
    </details>
  );
}

export function Tree({ line, value }: { line: number; value: unknown }) {
  return (
    <Dialog title={line > 0 ? `Line ${line}` : "JSON"} close={() => (overlay.value = null)}>
      <div class="tree" tabIndex={0} role="region" aria-label="JSON">
        <Value name="" value={value} open />
      </div>
      <footer>
        <button onClick={() => void copy(JSON.stringify(value, null, 2))}>Copy as JSON</button>
      </footer>
    </Dialog>
  );
}

/** editorURL is the address with which an editor opens a file: PATH:LINE:COLUMN. */
export function editorURL(editor: string, file: string, cwd: string): string {
  const m = file.match(/^(.*?):(\d+)(?::(\d+))?$/);
  if (!m) return "";
  const path = absolute(m[1]!, cwd);
  const encoded = path.split("/").map(encodeURIComponent).join("/");
  if (editor === "idea") return `idea://open?file=${encodeURIComponent(path)}&line=${m[2]}`;
  return `${editor}://file${encoded}:${m[2]}${m[3] ? ":" + m[3] : ""}`;
}

function absolute(path: string, cwd: string): string {
  const parts: string[] = [];
  for (const part of (path.startsWith("/") ? path : `${cwd}/${path}`).split("/")) {
    if (part === "..") parts.pop();
    else if (part && part !== ".") parts.push(part);
  }
  return "/" + parts.join("/");
}

/** openFile opens a file of a log in the editor that the person chose, or copies its path. */
export function openFile(editor: string, file: string, cwd: string) {
  const m = file.match(/^(.*?)((?::\d+)*)$/)!;
  if (!editor) return void copy(commandLine([absolute(m[1]!, cwd) + m[2]!]), "Path copied; the settings choose an editor");
  const a = document.createElement("a");
  a.href = editorURL(editor, file, cwd);
  a.click();
}
