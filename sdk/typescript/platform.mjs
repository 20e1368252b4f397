// Makes the package that carries the spool program for one platform:
//
//   node platform.mjs PROGRAM OS CPU DIRECTORY
//
// @spool-run/sdk has these packages as optional dependencies; npm installs the one that fits.
import { chmodSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [program, os, cpu, directory] = process.argv.slice(2);
const { version, license } = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8"));
mkdirSync(join(directory, "bin"), { recursive: true });
copyFileSync(program, join(directory, "bin", "spool"));
chmodSync(join(directory, "bin", "spool"), 0o755);
const description = `The spool program for ${os} on ${cpu}`;
const manifest = { name: `@spool-run/${os}-${cpu}`, version, description, license, os: [os], cpu: [cpu], files: ["bin"] };
writeFileSync(join(directory, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
