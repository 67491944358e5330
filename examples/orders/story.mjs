// Compiles the example in a folder of its own, beside modules that lie elsewhere, and runs its story there: nothing is
// written into the sources. node story.mjs MODULES [--once] [--pillarbox PROGRAM]

import { execFileSync, spawn } from "node:child_process";
import { cpSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [modules, ...rest] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "orders-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

for (const part of ["src", "package.json", "tsconfig.json", "pillarbox.yaml"]) {
  cpSync(join(here, part), join(folder, part), { recursive: true });
}
symlinkSync(modules, join(folder, "node_modules"));
execFileSync(process.execPath, ["node_modules/typescript/bin/tsc"], { cwd: folder, stdio: "inherit" });

const story = spawn(process.execPath, ["dist/story.js", ...rest], { cwd: folder, stdio: "inherit" });
// The terminal interrupts the story itself; this one waits for it.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => story.kill("SIGTERM"));
story.on("exit", (code) => process.exit(code ?? 1));
