// Compiles the example in a separate folder, with modules from another place, and runs one of its programs there (`main`
// or `story`). It writes nothing into the sources. node run.mjs MODULES PROGRAM [ARGUMENT…]

import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [node, , modules, program, ...rest] = process.argv;
const folder = mkdtempSync(join(tmpdir(), "orders-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM"]) {
  // Unless the program handles its end itself.
  process.on(signal, () => process.listenerCount(signal) === 1 && process.exit(0));
}

for (const part of ["src", "package.json", "tsconfig.json", "pillarbox.yaml"]) {
  cpSync(join(here, part), join(folder, part), { recursive: true });
}
symlinkSync(modules, join(folder, "node_modules"));
execFileSync(node, ["node_modules/typescript/bin/tsc"], { cwd: folder, stdio: "inherit" });

const file = join(folder, "dist", `${program}.js`);
process.argv = [node, file, ...rest];
await import(file);
