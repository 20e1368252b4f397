// The images that go with a prompt: pasted, dropped or chosen.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, type Info, type ServerInfo } from "../api.ts";
import { bytes } from "../format.ts";
import { defaultBytes, encode, mostImages, picked, types } from "../images.ts";

interface Attached {
  file: File;
  size: number;
  url: string;
}

export interface Attachments {
  list: Attached[];
  wrong: string;
  most: number; // bytes together
  add(files: FileList | null | undefined): boolean; // whether there were any
  remove(n: number): void;
  take(): File[]; // all of them, which are no longer there
  put(files: File[]): void; // back
}

/** encoded are images as a request has them. */
export const encoded = (files: File[]) => Promise.all(files.map(async f => ({ mime: f.type, base64: encode(await f.arrayBuffer()) })));

const attach = (file: File): Attached => ({ file, size: file.size, url: URL.createObjectURL(file) });

/** useAttachments are the images of one run's next prompt. */
export function useAttachments(info: Info): Attachments {
  const [list, setList] = useState<Attached[]>([]);
  const [wrong, setWrong] = useState("");
  const now = useRef(list);
  now.current = list;
  const config = (info.details as { config?: { image_bytes?: number } } | undefined)?.config;
  // They go with one request, in base64, which the server bounds as well.
  const wanted = Math.max(0, config?.image_bytes || defaultBytes);
  const [fits, setFits] = useState(defaultBytes);
  useEffect(() => {
    if (wanted > defaultBytes) get<ServerInfo>("/v1/server").then(s => setFits(Math.floor(((s.limits.body_bytes ?? 0) * 3) / 4) - 100_000), () => {});
  }, [wanted]);
  const most = Math.min(wanted, Math.max(fits, 0));
  const drop = (all: Attached[]) => all.forEach(a => URL.revokeObjectURL(a.url));
  useEffect(() => () => drop(now.current), [info.id]);
  return {
    list,
    wrong,
    most,
    add(files) {
      if (!files?.length) return false;
      const all = [...files];
      const { taken, wrong } = picked(all, list, most);
      setWrong(wrong);
      setList([...list, ...taken.map(i => attach(all[i]!))]);
      return true;
    },
    remove(n) {
      drop([list[n]!]);
      setWrong("");
      setList(list.filter((_, i) => i !== n));
    },
    take() {
      drop(list);
      setWrong("");
      setList([]);
      return list.map(a => a.file);
    },
    put: files => setList(there => [...files.map(attach), ...there]),
  };
}

/** AttachButton opens the dialog of the browser for files. */
export function AttachButton({ images }: { images: Attachments }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <button aria-describedby="images-help" onClick={() => input.current!.click()}>Add images</button>
      <input
        ref={input}
        type="file"
        hidden
        multiple
        accept={types.join()}
        onChange={e => {
          images.add(e.currentTarget.files);
          e.currentTarget.value = "";
        }}
      />
      <span id="images-help" class="quiet">Or paste or drop them: up to {mostImages}, {bytes(images.most)} together</span>
    </>
  );
}

/** AttachedList shows what goes with the prompt. */
export function AttachedList({ images }: { images: Attachments }) {
  const sum = images.list.reduce((n, a) => n + a.size, 0);
  return (
    <>
      {images.wrong && <p role="alert" class="aside bad">{images.wrong}</p>}
      {images.list.length > 0 && (
        <>
          <ul class="pictures" aria-label="Images of this prompt">
            {images.list.map((a, n) => (
              <li key={a.url} class="picture">
                <img src={a.url} alt={`${a.file.name || "Image"}, ${bytes(a.size)}`} />
                <button class="remove" aria-label={`Remove ${a.file.name || "image " + (n + 1)}`} title="Remove" onClick={() => images.remove(n)}>✕</button>
              </li>
            ))}
          </ul>
          <p class="quiet" role="status">{images.list.length} of {mostImages} images, {bytes(sum)} of {bytes(images.most)}</p>
        </>
      )}
    </>
  );
}
