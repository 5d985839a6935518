// A client of the TypeScript SDK that lists and calls the tools of many servers, for `schemas.py`.
//
//   schemas.mjs v1|v2
//
// It reads {"server": {"url": …, "calls": {"tool": arguments}}} and writes {"server": {"tools": […], "calls": {"tool": result}}},
// or {"server": {"error": …}} where the tools could not be listed.

import { text } from "node:stream/consumers";

import { load } from "./packages.mjs";

// Servers at once.
const AT_ONCE = 8;

const INFO = { name: "interop-schemas", version: "1.0.0" };

const CONNECT = {
  v1: async (url) => {
    const { Client } = await load("ts-v1", "@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await load("ts-v1", "@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client(INFO);
    await client.connect(new StreamableHTTPClientTransport(url));
    return client;
  },
  v2: async (url) => {
    const { Client, StreamableHTTPClientTransport } = await load("ts-v2", "@modelcontextprotocol/client");
    const client = new Client(INFO, { versionNegotiation: { mode: "auto" } });
    await client.connect(new StreamableHTTPClientTransport(url));
    return client;
  },
};

const shortened = (error) => `${error.name}: ${error.message}`.slice(0, 500);

async function call(client, name, args) {
  try {
    const result = await client.callTool({ name, arguments: args });
    const said = result.content.map((block) => block.text ?? "").join("");
    return result.isError ? { error: said } : { text: said, structured: result.structuredContent ?? null };
  } catch (error) {
    return { error: shortened(error) };
  }
}

async function lookAt(server, connect) {
  const client = await connect(new URL(server.url));
  try {
    const { tools } = await client.listTools();
    const calls = {};
    for (const { name } of tools) {
      if (name in server.calls) calls[name] = await call(client, name, server.calls[name]);
    }
    return { tools, calls };
  } finally {
    await client.close();
  }
}

const servers = Object.entries(JSON.parse(await text(process.stdin)));
const connect = CONNECT[process.argv[2]];
const outcomes = {};

async function work() {
  for (let next = servers.shift(); next; next = servers.shift()) {
    const [name, server] = next;
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error("timed out")), server.seconds * 1000);
    });
    outcomes[name] = await Promise.race([lookAt(server, connect), late]).catch((error) => ({ error: shortened(error) }));
    clearTimeout(timer);
  }
}

await Promise.all(Array.from({ length: AT_ONCE }, work));
// What hangs in a client must not keep the rest.
process.stdout.write(JSON.stringify(outcomes), () => process.exit(0));
