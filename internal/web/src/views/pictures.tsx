// Pictures: of displays, and of prompts.
import { useEffect, useState } from "preact/hooks";
import { request, runPath, words, type Info } from "../api.ts";
import { bytes } from "../format.ts";
import { types, type PromptImage } from "../images.ts";

/** usePicture fetches with the key of the page, which an img element cannot send. */
export function usePicture(path: string, type: string): { url: string; error: string } {
  const [url, setUrl] = useState("");
  const [error, setError] = useState("");
  useEffect(() => {
    let made = "";
    let over = false;
    request("GET", path, { accept: type })
      .then(a => a.blob())
      .then(b => {
        if (over) return;
        made = URL.createObjectURL(b);
        setUrl(made);
      })
      .catch(e => setError(words(e)));
    return () => {
      over = true;
      if (made) URL.revokeObjectURL(made);
    };
  }, [path, type]);
  return { url, error };
}

/** PromptPictures are the images of a prompt: small, and large if somebody wants that. */
export function PromptPictures({ info, images }: { info: Info; images: PromptImage[] }) {
  const known = images.filter(i => types.includes(i.mime) && (i.blob || i.base64));
  if (!known.length) return images.length ? <p class="quiet">Images that cannot be shown: {images.length}</p> : null;
  return (
    <div class="pictures" role="group" aria-label="Images of the prompt">
      {known.map((i, n) => (i.blob ? <Stored key={n} info={info} image={i} n={n + 1} /> : <Shown key={n} image={i} n={n + 1} url={`data:${i.mime};base64,${i.base64}`} error="" />))}
    </div>
  );
}

function Stored({ info, image, n }: { info: Info; image: PromptImage; n: number }) {
  const { url, error } = usePicture(`${runPath(info.id)}/blobs/${encodeURIComponent(image.blob!)}?type=${encodeURIComponent(image.mime)}`, image.mime);
  return <Shown image={image} n={n} url={url} error={error} />;
}

function Shown({ image, n, url, error }: { image: PromptImage; n: number; url: string; error: string }) {
  const [large, setLarge] = useState(false);
  const what = `Image ${n}, ${image.mime.slice(6).toUpperCase()}${image.size_bytes ? ", " + bytes(image.size_bytes) : ""}`;
  if (error) return <p class="aside bad">{what}: {error}</p>;
  return (
    <button class={"picture" + (large ? " large" : "")} aria-expanded={large} title={large ? "Show it small" : "Show it large"} onClick={() => setLarge(!large)}>
      {url ? <img src={url} alt={what} /> : <span class="sr">{what}, loading</span>}
    </button>
  );
}
