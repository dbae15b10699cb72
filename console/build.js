// Builds the console into crates/admin/assets, or with --check compares a new build with what is there. Contents are compared, not compressed
// bytes, which differ between versions of zlib.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";
import { build } from "vite";

const LIMIT = 300_000;
const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "dist");
const assets = join(here, "../crates/admin/assets");

process.env.NODE_ENV = "production";
await build({ root: here, configFile: join(here, "vite.config.js"), logLevel: "warn", build: { outDir: out, emptyOutDir: true } });

const files = new Map(["console.js", "console.css"].map((name) => [name, readFileSync(join(out, name))]));
let shell = readFileSync(join(out, "index.html"), "utf8");
for (const [name, content] of files) {
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 16);
  shell = shell.replace(`/console/${name}"`, `/console/${name}?v=${hash}"`);
}
files.set("index.html", Buffer.from(shell));
rmSync(out, { recursive: true });

let total = 0;
const stale = [];
mkdirSync(assets, { recursive: true });
for (const [name, content] of files) {
  const file = join(assets, `${name}.gz`);
  if (process.argv.includes("--check")) {
    const committed = gunzipSync(readFileSync(file));
    if (!committed.equals(content)) stale.push(name);
    total += readFileSync(file).length;
  } else {
    const compressed = gzipSync(content, { level: 9 });
    total += compressed.length;
    writeFileSync(file, compressed);
  }
}
console.log(`console: ${Math.round(total / 1000)} kB compressed`);
if (total > LIMIT) throw new Error(`the console is larger than ${LIMIT / 1000} kB compressed`);
if (stale.length > 0) throw new Error(`${stale.join(", ")} in crates/admin/assets is not what the sources build: cargo xtask console build`);
