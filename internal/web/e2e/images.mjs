// Journeys with images of prompts: chosen, pasted and dropped, refused, sent and shown again.
import assert from "node:assert/strict";
import { join } from "node:path";
import { crc32, deflateSync } from "node:zlib";
import { fair, gone, press, see, until } from "./page.mjs";
import { visit } from "./server.mjs";

/** png is a picture in the format PNG. */
function png(width, height, colour) {
  const rows = Buffer.alloc(height * (1 + 3 * width));
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) rows.set(colour(x / width, y / height), y * (1 + 3 * width) + 1 + 3 * x);
  const chunk = (name, data) => {
    const b = Buffer.concat([Buffer.from(name), data]);
    const ends = Buffer.alloc(8);
    ends.writeUInt32BE(data.length, 0);
    ends.writeUInt32BE(crc32(b), 4);
    return Buffer.concat([ends.subarray(0, 4), b, ends.subarray(4)]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), chunk("IHDR", head), chunk("IDAT", deflateSync(rows)), chunk("IEND", Buffer.alloc(0))]);
}

/** give hands files to the composer as a browser does when somebody pastes or drops them. */
const give = (page, kind, name, type, content) =>
  page.locator("#composer").evaluate(
    (field, { kind, name, type, content }) => {
      const data = new DataTransfer();
      data.items.add(new File([Uint8Array.from(atob(content), c => c.charCodeAt(0))], name, { type }));
      const o = { bubbles: true, cancelable: true };
      field.dispatchEvent(kind === "paste" ? new ClipboardEvent("paste", { ...o, clipboardData: data }) : new DragEvent(kind, { ...o, dataTransfer: data }));
    },
    { kind, name, type, content: content.toString("base64") },
  );

export default ({ server, b, owner }) => ({
  async "images of a prompt"() {
    const plot = png(400, 240, (x, y) => (Math.abs(y - 0.5 - 0.35 * Math.sin(9 * x)) < 0.02 ? [53, 73, 196] : [250, 250, 252]));
    const tall = png(90, 300, (x, y) => [255 * y, 120, 255 * x]);
    const run = await server.run({ engine: "agent", name: "sees", config: { agent: "acp", command: ["node", join(import.meta.dirname, "agent.mjs")] } });
    const dialog = owner.waitForEvent("filechooser"); // from here on: the browser is told of it in its own time
    await owner.goto(`${server.url}/runs/${run.id}`);
    // By keyboard alone, with the limits in words before anything is sent.
    await see(owner, "Add images");
    await owner.locator("#composer").focus();
    await press(owner, "Tab");
    assert.equal(await owner.evaluate(() => document.activeElement.textContent), "Add images");
    await see(owner, "up to 20, 5.2 MB together");
    await press(owner, "Enter");
    const chooser = await dialog;
    await chooser.setFiles([{ name: "plot.png", mimeType: "image/png", buffer: plot }, { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("x") }]);
    await see(owner, "notes.txt is no PNG, JPEG, GIF or WebP.");
    await see(owner, "1 of 20 images");
    await give(owner, "paste", "tall.png", "image/png", tall);
    await see(owner, "2 of 20 images");
    await gone(owner, ".composer [role=alert]");
    await give(owner, "dragover", "large.png", "image/png", plot);
    await owner.locator(".composer.over").waitFor();
    await give(owner, "drop", "large.png", "image/png", Buffer.alloc(6_000_000, 1));
    await see(owner, "large.png is too large: the images of a prompt have at most 5.2 MB together.");
    await gone(owner, ".composer.over");
    await give(owner, "drop", "again.png", "image/png", plot);
    await see(owner, "3 of 20 images");
    await until(owner, () => [...document.querySelectorAll(".composer img")].every(i => i.naturalWidth > 0));
    await fair(owner, "composer-images");
    await owner.locator("[aria-label='Remove again.png']").focus();
    await press(owner, "Enter");
    await see(owner, "2 of 20 images");
    // Sent, shown and seen by the agent; also after the page is loaded anew, from the log.
    await owner.fill("#composer", "What is wrong with this plot?");
    await press(owner, "Enter");
    await see(owner, `I see image/png of ${plot.length} bytes and image/png of ${tall.length} bytes.`);
    await gone(owner, ".composer .picture");
    await owner.reload();
    await until(owner, () => [...document.querySelectorAll(".turn .picture img")].map(i => i.naturalWidth).join() === "400,90");
    await fair(owner, "conversation-images");
    await owner.locator(".turn .picture").first().focus();
    await press(owner, "Enter");
    await owner.locator(".turn .picture.large[aria-expanded=true]").waitFor();
    await fair(owner, "conversation-image-large");
    await press(owner, "Enter");
    // Images without a word.
    await give(owner, "paste", "", "image/png", tall);
    await see(owner, "1 of 20 images");
    await owner.locator("#composer").focus();
    await press(owner, "Enter");
    await see(owner, `I see image/png of ${tall.length} bytes.`);
    const phone = await visit(b, server.open(run.id), { viewport: { width: 320, height: 640 }, hasTouch: true, isMobile: true });
    await phone.locator(".turn .picture img").first().waitFor();
    await give(phone, "paste", "plot.png", "image/png", plot);
    await see(phone, "1 of 20 images");
    await fair(phone, "conversation-images-phone");
    await phone.context().close();
    // What the log has is served so that nothing of it runs.
    const image = (await server.events(run.id)).find(e => e.kind === "input").data.data.images[0];
    const answer = await fetch(`${server.url}/v1/runs/${run.id}/blobs/${image.blob}?type=${image.mime}`, { headers: { Authorization: "Bearer " + server.token } });
    assert.deepEqual(Buffer.from(await answer.arrayBuffer()), plot);
    assert.match(answer.headers.get("Content-Security-Policy"), /default-src 'none'; sandbox/);
    assert.equal(answer.headers.get("X-Content-Type-Options"), "nosniff");
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },

  async "an agent that takes no images"() {
    const run = await server.run({ engine: "agent", name: "blind", config: { agent: "acp", command: ["node", join(import.meta.dirname, "agent.mjs"), "blind"] } });
    await owner.goto(`${server.url}/runs/${run.id}`);
    await owner.fill("#composer", "Thanks");
    await press(owner, "Enter");
    await see(owner, "You are welcome.");
    await gone(owner, "text=Add images");
    await give(owner, "paste", "dot.png", "image/png", png(1, 1, () => [0, 0, 0]));
    await see(owner, "This agent cannot be shown images.");
    await server.call("POST", `/v1/runs/${run.id}/control`, { op: "kill" });
  },
});
