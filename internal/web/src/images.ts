// Images of prompts: what may be sent, and what the log has of them.
import { bytes, plural } from "./format.ts";

/** types are the images that agents are shown, and that the page shows. */
export const types = ["image/png", "image/jpeg", "image/gif", "image/webp"];

export const mostImages = 20;
export const defaultBytes = 5 * 1024 * 1024; // together, unless the config of the agent has another number

/** PromptImage is an image as the log has it: a blob, or bytes if the run has no place for blobs. */
export interface PromptImage {
  mime: string;
  blob?: string;
  base64?: string;
  size_bytes?: number;
}

/** picked are the files that may be added to those that are there, and why the others may not. */
export function picked(files: { name: string; type: string; size: number }[], there: { size: number }[], most: number): { taken: number[]; wrong: string } {
  const taken: number[] = [];
  let sum = there.reduce((n, f) => n + f.size, 0);
  let wrong = "";
  for (const [i, f] of files.entries()) {
    const name = f.name || "The image";
    if (!types.includes(f.type)) wrong ||= `${name} is no PNG, JPEG, GIF or WebP.`;
    else if (!f.size) wrong ||= `${name} is empty.`;
    else if (there.length + taken.length >= mostImages) wrong ||= `A prompt has at most ${plural(mostImages, "image")}.`;
    else if (sum + f.size > most) wrong ||= `${name} is too large: the images of a prompt have at most ${bytes(most)} together.`;
    else {
      taken.push(i);
      sum += f.size;
    }
  }
  return { taken, wrong };
}

/** encode is the content of a file in base64. */
export function encode(content: ArrayBuffer): string {
  const b = new Uint8Array(content);
  let text = "";
  for (let i = 0; i < b.length; i += 0x8000) text += String.fromCharCode(...b.subarray(i, i + 0x8000));
  return btoa(text);
}
