// The workflows of .github, read by actionlint, which knows their words.
//
//     node tests/install/workflows.mjs INSTALL FILE...
//
// INSTALL is what `scripts/setup-tests.sh actionlint` made. Ends with `N passed, N failed`.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [install, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(resolve(install, "package.json"))("actionlint");
const lint = await createLinter();

// A linter that finds nothing at all would pass everything.
const wrong = "name: x\non: pusch\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - run: echo ${{ github.nope }}\n";
if (lint(wrong, "wrong.yml").length !== 2) throw new Error("actionlint does not see what is wrong");

let failed = 0;
for (const file of files) {
  const found = lint(readFileSync(file, "utf8"), file);
  for (const { line, column, message } of found) console.log(`${file}:${line}:${column}: ${message}`);
  failed += found.length > 0;
  console.log(`${found.length > 0 ? "FAIL" : "ok  "} ${file}`);
}
console.log(`${files.length - failed} passed, ${failed} failed`);
process.exit(failed > 0 || files.length === 0 ? 1 : 0);
