// Builds the console into dist/: node build.mjs. Names are stable and files are
// compressed. A file whose content is the same is left alone, so that another version
// of zlib changes nothing.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));

/** options are those of esbuild, for the build and for working on the console. */
export const options = {
  absWorkingDir: here,
  // Screens that few people open are in a file of their own; what both need is shared.
  entryPoints: { app: "src/app.tsx", more: "src/more.tsx" },
  splitting: true,
  chunkNames: "shared",
  outdir: "dist",
  bundle: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  write: false,
};

/** parts are the options for what stands alone. */
export const parts = {
  ...options,
  entryPoints: {
    terminal: "src/terminal.ts",
    webgl: "src/webgl.ts",
    markdown: "src/markdown.ts",
    style: "src/style.css",
    "terminal-style": "node_modules/@xterm/xterm/css/xterm.css",
  },
  splitting: false,
};

/** licences returns the licences of the packages whose code is in the console. */
export function licences() {
  let text = "The console of Spool contains these packages.\n";
  for (const name of ["preact", "@preact/signals", "@preact/signals-core", "@xterm/xterm", "@xterm/addon-search", "@xterm/addon-webgl", "marked"]) {
    const dir = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
    const file = readdirSync(dir).find(f => /^licen[cs]e/i.test(f));
    text += `\n${"-".repeat(72)}\n${name} ${version} (${license})\n\n`;
    if (file) text += readFileSync(join(dir, file), "utf8").trim() + "\n";
  }
  return text;
}

/** budgets bound the compressed size of files, in bytes. */
const budgets = [
  { what: "the shell", files: ["index.html", "app.js", "shared.js", "style.css"], most: 60_000 },
  { what: "the terminal", files: ["terminal.js", "terminal-style.css"], most: 125_000 },
  { what: "Markdown", files: ["markdown.js"], most: 16_000 },
  { what: "everything", files: null, most: 260_000 },
];

async function main() {
  const made = new Map();
  const results = await Promise.all([build(options), build(parts)]);
  for (const file of results.flatMap(r => r.outputFiles)) made.set(file.path.slice(join(here, "dist").length + 1), Buffer.from(file.contents));
  for (const name of readdirSync(join(here, "static"))) made.set(name, readFileSync(join(here, "static", name)));
  // The address of what is shared changes with its content, so that browsers may keep it.
  const version = createHash("sha256").update(made.get("shared.js")).digest("hex").slice(0, 16);
  for (const name of ["app.js", "more.js", "index.html"]) made.set(name, Buffer.from(made.get(name).toString().replaceAll("/shared.js", "/shared.js?v=" + version)));
  made.set("licences.txt", Buffer.from(licences()));

  const dist = join(here, "dist");
  mkdirSync(dist, { recursive: true });
  const sizes = new Map();
  for (const [name, bytes] of made) {
    const path = join(dist, name + ".gz");
    let packed = existsSync(path) ? readFileSync(path) : null;
    if (!packed || !gunzipSync(packed).equals(bytes)) {
      packed = gzipSync(bytes, { level: 9 });
      writeFileSync(path, packed);
    }
    sizes.set(name, packed.length);
  }
  for (const name of readdirSync(dist)) if (!made.has(name.replace(/\.gz$/, ""))) rmSync(join(dist, name));
  let failed = false;
  for (const { what, files, most } of budgets) {
    const size = (files ?? [...sizes.keys()]).reduce((sum, name) => sum + (sizes.get(name) ?? 0), 0);
    console.log(`${what}: ${(size / 1000).toFixed(1)} of ${most / 1000} KB`);
    failed ||= size > most;
  }
  if (failed) throw new Error("the console is larger than it may be");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
