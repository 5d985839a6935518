// A client of the TypeScript SDK that lists and calls the tools of many servers, for `schemas.py` and `faults.py`.
//
//   schemas.mjs v1|v2
//
// It reads {"server": {"url" or "command": …, "calls": {"tool": arguments}}} and writes {"server": {"tools": […], "calls": {"tool": result}}},
// or {"server": {"error": …}} where the tools could not be listed. A list of arguments is as many calls at once, with a list of results;
// `start_seconds` is how long the handshake may take.

import { text } from "node:stream/consumers";

import { load } from "./packages.mjs";

// Servers at once.
const AT_ONCE = 8;

const INFO = { name: "interop-schemas", version: "1.0.0" };

const CONNECT = {
  v1: async (server) => {
    const { Client } = await load("ts-v1", "@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await load("ts-v1", "@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client(INFO);
    const { StdioClientTransport } = await load("ts-v1", "@modelcontextprotocol/sdk/client/stdio.js");
    await client.connect(transport(server, StreamableHTTPClientTransport, StdioClientTransport), patience(server));
    return client;
  },
  v2: async (server) => {
    const { Client, StreamableHTTPClientTransport } = await load("ts-v2", "@modelcontextprotocol/client");
    const client = new Client(INFO, { versionNegotiation: { mode: "auto" } });
    const { StdioClientTransport } = await load("ts-v2", "@modelcontextprotocol/client/stdio");
    await client.connect(transport(server, StreamableHTTPClientTransport, StdioClientTransport), patience(server));
    return client;
  },
};

/** The way to a server at a URL, or to a command over standard input and output. */
function transport({ url, command }, Http, Stdio) {
  return command ? new Stdio({ command: command[0], args: command.slice(1), stderr: "ignore" }) : new Http(new URL(url));
}

/** How long the handshake may take, if that is said. */
const patience = ({ start_seconds: seconds }) => (seconds ? { timeout: seconds * 1000 } : undefined);

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
  const client = await connect(server);
  try {
    const { tools } = await client.listTools();
    const calls = {};
    for (const { name } of tools) {
      if (!(name in server.calls)) continue;
      const args = server.calls[name];
      const all = await Promise.all([args].flat().map((one) => call(client, name, one)));
      calls[name] = Array.isArray(args) ? all : all[0];
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
