// What a terminal still has to draw. It gets no more at once than it can take in within a
// frame, and what was overtaken by a newer screen is never drawn.

const pieceBytes = 16 << 10;

interface Piece {
  bytes: Uint8Array;
  shown?: () => void; // told after the last piece of what came together
}

export class Feed {
  private queue: Piece[] = [];
  private waits = 0;
  private writing = false;

  /** write draws bytes and tells when they are drawn. */
  constructor(private readonly write: (bytes: Uint8Array, shown: () => void) => void) {}

  /** behind is how many bytes are not drawn. */
  get behind(): number {
    return this.waits;
  }

  push(bytes: Uint8Array, shown: () => void) {
    this.waits += bytes.length;
    let at = 0;
    for (; bytes.length - at > pieceBytes; at += pieceBytes) this.queue.push({ bytes: bytes.subarray(at, at + pieceBytes) });
    this.queue.push({ bytes: bytes.subarray(at), shown });
    this.next();
  }

  /** then does something after all that came so far. */
  then(what: () => void) {
    this.push(new Uint8Array(), what);
  }

  /** drop forgets what was not drawn. */
  drop() {
    const all = this.queue;
    this.queue = [];
    for (const p of all) {
      this.waits -= p.bytes.length;
      p.shown?.();
    }
  }

  private next() {
    if (this.writing) return;
    const p = this.queue.shift();
    if (!p) return;
    this.writing = true;
    this.write(p.bytes, () => {
      this.writing = false;
      this.waits -= p.bytes.length;
      p.shown?.();
      this.next();
    });
  }
}
