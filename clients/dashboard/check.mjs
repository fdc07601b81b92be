// Builds the dashboard into a temporary folder, and fails if the committed files differ by a byte.

import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildInto } from "./build.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const committed = join(here, "../../crates/tidegate-server/src/dashboard/assets");
const fresh = mkdtempSync(join(tmpdir(), "tidegate-dashboard-"));
const differences = [];
try {
  await buildInto(fresh);
  const names = (folder) => readdirSync(folder).sort();
  if (String(names(fresh)) !== String(names(committed))) {
    differences.push(`files: ${names(committed)}, built: ${names(fresh)}`);
  }
  for (const name of names(fresh)) {
    const isThere = names(committed).includes(name);
    if (isThere && !readFileSync(join(fresh, name)).equals(readFileSync(join(committed, name)))) {
      differences.push(`${name} is not what its sources build`);
    }
  }
} finally {
  rmSync(fresh, { recursive: true });
}
for (const difference of differences) console.error(difference);
if (differences.length > 0) {
  console.error("run: npm run build --prefix clients/dashboard");
  process.exitCode = 1;
}
