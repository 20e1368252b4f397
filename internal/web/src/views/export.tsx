// The log of a run as a file.
import { post, runPath, type Info, type TicketInfo } from "../api.ts";
import { attempt, Dialog, overlay } from "../ui.tsx";

/** save has the browser fetch a file of a run itself, of any size, with a ticket. */
async function save(info: Info, path: string, ending: string) {
  await attempt(async () => {
    const a = document.createElement("a");
    a.href = (await post<TicketInfo>("/v1/tickets", { path: runPath(info.id) + path })).url;
    a.download = `${(info.name || info.id).replace(/[^\w.-]+/g, "-")}.${ending}`;
    a.click();
  });
}

/** Export saves the log in a form for other programs or for people. */
export function Export({ info }: { info: Info }) {
  const close = () => (overlay.value = null);
  const python = info.engine === "kernel" || info.engine === "sandbox";
  const forms: [string, string, string][] = [
    ["/output", "log", "The output, byte for byte"],
    ["/export?format=txt", "txt", "What a person reads, as text"],
    ["/export?format=html", "html", "A page that needs no other file"],
    ["/export?format=md", "md", "Markdown"],
    ["/export?format=jsonl", "jsonl", "The events, a JSON object a line"],
  ];
  if (info.engine !== "agent") forms.push(["/export?format=cast", "cast", "A recording for asciinema"]);
  if (python) forms.push(["/export?format=ipynb", "ipynb", "A notebook for Jupyter"]);
  return (
    <Dialog title="Export this run" close={close}>
      <p>Up to the last event that it has now.</p>
      <div class="stack">
        {forms.map(([path, ending, text]) => (
          <button key={path} style={{ justifyContent: "space-between" }} onClick={() => { close(); void save(info, path, ending); }}>
            {text} <code>.{ending}</code>
          </button>
        ))}
      </div>
    </Dialog>
  );
}
