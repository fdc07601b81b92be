// Bundles the dashboard into a folder. The output depends only on the sources and the pinned packages.
// usage: node build.mjs FOLDER

import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));

/** The licence of uPlot as a comment that the bundle begins with. */
function licence() {
  const text = readFileSync(join(here, "node_modules/uplot/LICENSE"), "utf8").trim();
  const lines = text.split(/\r?\n/).map((line) => ` * ${line}`.trimEnd());
  return ["/*!", " * This file contains uPlot.", " *", ...lines, " */"].join("\n");
}

export async function buildInto(folder) {
  mkdirSync(folder, { recursive: true });
  const banner = licence();
  await build({
    absWorkingDir: here,
    entryPoints: { dashboard: "src/main.ts" },
    outdir: resolve(folder),
    bundle: true,
    minify: true,
    format: "esm",
    target: ["es2022", "chrome110", "firefox115", "safari16"],
    charset: "utf8",
    legalComments: "inline",
    banner: { js: banner, css: banner },
    logLevel: "warning",
  });
  for (const file of ["index.html", "favicon.svg"]) {
    copyFileSync(join(here, "src", file), join(folder, file));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildInto(resolve(process.argv[2]));
