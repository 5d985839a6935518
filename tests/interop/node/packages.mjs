// Finds the SDKs, which `scripts/setup-tests.sh` installs outside the clone.

import { createRequire } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const cache = process.env.PONTOON_TEST_CACHE || join(homedir(), ".cache", "pontoon-test");

/** The module `specifier` of the install `name`. */
export function load(name, specifier) {
  const require = createRequire(join(cache, name, "package.json"));
  return import(pathToFileURL(require.resolve(specifier)));
}
