// Serves the console from its sources, in front of a server of Spool, and reloads pages
// when a source changes: node dev.mjs http://127.0.0.1:7766 [PORT].
import { context } from "esbuild";
import { randomBytes } from "node:crypto";
import { readFileSync, existsSync } from "node:fs";
import http from "node:http";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { licences, options, parts } from "./build.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const target = new URL(process.argv[2] ?? "http://127.0.0.1:7766");
const port = Number(process.argv[3] ?? 7767);
const types = { ".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml", ".txt": "text/plain", ".webmanifest": "application/manifest+json" };

const files = new Map();
const pages = new Set();
const reload = {
  name: "reload",
  setup(build) {
    build.onEnd(result => {
      if (!result.outputFiles) return;
      for (const f of result.outputFiles) files.set(f.path.slice(join(here, "dist").length + 1), f.contents);
      for (const page of pages) page.write("data: changed\n\n");
    });
  },
};
for (const some of [options, parts]) {
  const watcher = await context({ ...some, minify: false, sourcemap: "inline", plugins: [reload] });
  await watcher.watch();
}

// The server refuses what pages of other origins send: to it, we are its own page.
function headers(from) {
  const to = { ...from, host: target.host };
  if (to.origin) to.origin = target.origin;
  delete to["sec-fetch-site"];
  return to;
}

const server = http.createServer((request, answer) => {
  const path = new URL(request.url, target).pathname;
  if (path === "/dev/reload") {
    answer.writeHead(200, { "Content-Type": "text/event-stream" });
    answer.write(": \n\n");
    pages.add(answer);
    answer.on("close", () => pages.delete(answer));
    return;
  }
  if (path === "/dev/reload.js") {
    answer.writeHead(200, { "Content-Type": types[".js"] });
    answer.end('new EventSource("/dev/reload").onmessage = () => location.reload();');
    return;
  }
  const asset = path.startsWith("/assets/") ? path.slice(8) : "";
  if (asset) {
    const file = join(here, "static", asset);
    const bytes = files.get(asset) ?? (asset === "licences.txt" ? licences() : existsSync(file) ? readFileSync(file) : null);
    answer.writeHead(bytes ? 200 : 404, { "Content-Type": types[extname(asset)] + "; charset=utf-8", "Cache-Control": "no-store" });
    answer.end(bytes ?? "");
    return;
  }
  if (/^\/($|inbox$|new$|doctor$|settings$|login$|runs\/[^/]+$)/.test(path)) {
    const html = readFileSync(join(here, "static/index.html"), "utf8").replaceAll("NONCE", randomBytes(16).toString("base64")).replaceAll("VERSION", String(Date.now()));
    answer.writeHead(200, { "Content-Type": "text/html; charset=utf-8" });
    answer.end(html.replace("</head>", '<script src="/dev/reload.js"></script></head>'));
    return;
  }
  const upstream = http.request({ host: target.hostname, port: target.port, method: request.method, path: request.url, headers: headers(request.headers) }, got => {
    answer.writeHead(got.statusCode, got.headers);
    got.pipe(answer);
  });
  upstream.on("error", () => answer.destroy());
  answer.on("close", () => upstream.destroy());
  request.pipe(upstream);
});

server.on("upgrade", (request, socket, head) => {
  const upstream = http.request({ host: target.hostname, port: target.port, path: request.url, headers: headers(request.headers) });
  upstream.on("upgrade", (got, other, first) => {
    socket.write("HTTP/1.1 101 Switching Protocols\r\n" + Object.entries(got.headers).map(([k, v]) => `${k}: ${v}\r\n`).join("") + "\r\n");
    socket.write(first);
    other.write(head);
    other.pipe(socket).pipe(other);
    other.on("error", () => socket.destroy());
    socket.on("error", () => other.destroy());
  });
  upstream.on("response", () => socket.destroy());
  upstream.on("error", () => socket.destroy());
  upstream.end();
});

server.listen(port, "127.0.0.1", () => console.log(`The console is at http://127.0.0.1:${port}/: add the code from the address that the server printed, #c=…`));
