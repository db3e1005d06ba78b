// Bundles the front end into static/dist and writes version.txt, a hash of the bundle that pages put into its addresses.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const source = fileURLToPath(new URL(".", import.meta.url));
const target = fileURLToPath(new URL("../dist/", import.meta.url));
rmSync(target, { recursive: true, force: true });
const options = { outdir: target, bundle: true, minify: true, target: "es2022", legalComments: "none", logLevel: "warning" };
await build({ ...options, entryPoints: [source + "playground.js", source + "compare.js"], format: "esm" });
await build({ ...options, entryPoints: [source + "theme.js", source + "layout.js", source + "style.css"], format: "iife" });
copyFileSync(source + "icon.svg", target + "icon.svg");
const hash = createHash("sha256");
for (const name of readdirSync(target).sort()) hash.update(readFileSync(target + name));
writeFileSync(target + "version.txt", hash.digest("hex").slice(0, 12) + "\n");
