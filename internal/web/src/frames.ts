// Server-sent events, read with fetch: it can send the key of the page.

export interface Frame {
  event: string;
  data: string;
  id?: string;
}

/** FrameReader takes the bytes of a stream and gives its frames. */
export class FrameReader {
  private text = "";
  private readonly decoder = new TextDecoder();

  push(bytes: Uint8Array): Frame[] {
    this.text += this.decoder.decode(bytes, { stream: true });
    const frames: Frame[] = [];
    for (;;) {
      const end = this.text.indexOf("\n\n");
      if (end < 0) return frames;
      const frame = parse(this.text.slice(0, end));
      this.text = this.text.slice(end + 2);
      if (frame) frames.push(frame);
    }
  }
}

function parse(block: string): Frame | null {
  let event = "message";
  let id: string | undefined;
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    if (at <= 0) continue; // a comment
    const value = line.slice(at + 1).replace(/^ /, "");
    const name = line.slice(0, at);
    if (name === "event") event = value;
    else if (name === "data") data.push(value);
    else if (name === "id") id = value;
  }
  if (data.length === 0) return null;
  return id === undefined ? { event, data: data.join("\n") } : { event, data: data.join("\n"), id };
}

/** frames yields the frames of an answer. */
export async function* frames(answer: Response): AsyncGenerator<Frame> {
  const reader = answer.body!.getReader();
  const parser = new FrameReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
