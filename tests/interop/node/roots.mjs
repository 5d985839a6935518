// A client with a folder, before the filesystem server, which asks its client for the folders.
//
//   roots.mjs URL --sdk v1|v2 [--era modern|legacy]

import assert from "node:assert/strict";
import { mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

import { load } from "./packages.mjs";

const INFO = { name: "interop-roots", version: "1.0.0" };
const CAPABILITIES = { roots: {} };

async function connectV1(url, _era, roots) {
  const { Client } = await load("ts-v1", "@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await load("ts-v1", "@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { ListRootsRequestSchema } = await load("ts-v1", "@modelcontextprotocol/sdk/types.js");
  const client = new Client(INFO, { capabilities: CAPABILITIES });
  client.setRequestHandler(ListRootsRequestSchema, () => ({ roots }));
  await client.connect(new StreamableHTTPClientTransport(url));
  return client;
}

async function connectV2(url, era, roots) {
  const { Client, StreamableHTTPClientTransport } = await load("ts-v2", "@modelcontextprotocol/client");
  const versionNegotiation = era === "modern" ? { mode: "auto" } : undefined;
  const client = new Client(INFO, { capabilities: CAPABILITIES, versionNegotiation });
  client.setRequestHandler("roots/list", () => ({ roots }));
  await client.connect(new StreamableHTTPClientTransport(url));
  return client;
}

const CHECKS = {
  "the folder arrives": async (call, folder) => {
    let text = "";
    // The server looks at the folders while it serves, so the first call may come too soon.
    for (let i = 0; i < 20; i++) {
      text = await call("list_allowed_directories", {});
      if (text.includes(folder)) return;
      await pause(100);
    }
    assert.fail(`no ${folder} in ${text}`);
  },
  "a file in it is read": async (call, folder) => {
    const text = await call("read_text_file", { path: join(folder, "note.txt") });
    assert.ok(text.includes("from my folder"), text);
  },
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { sdk: { type: "string" }, era: { type: "string", default: "legacy" }, "server-note": { type: "string" } },
});
console.log(`# ${positionals[0]} ${values.era} ${values["server-note"] ?? ""}`);
const folder = await realpath(await mkdtemp(join(tmpdir(), "pontoon-roots-")));
await writeFile(join(folder, "note.txt"), "from my folder");
const connect = values.sdk === "v1" ? connectV1 : connectV2;
const client = await connect(new URL(positionals[0]), values.era, [{ uri: pathToFileURL(folder).href }]);
const call = async (name, args) =>
  (await client.callTool({ name, arguments: args })).content.map((block) => block.text).join("");
let passed = 0;
let failed = 0;
for (const [name, check] of Object.entries(CHECKS)) {
  try {
    await check(call, folder);
    passed += 1;
    console.log(`ok   ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}: ${error.message}`);
  }
}
await client.close();
await rm(folder, { recursive: true });
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
