// @modelcontextprotocol/sdk 1 over its WebSocket transport, on Node's own WebSocket.

import { load } from "./packages.mjs";
import { answerBlue, main, textOf } from "./checks.mjs";

const { Client } = await load("ts-v1", "@modelcontextprotocol/sdk/client/index.js");
const { WebSocketClientTransport } = await load("ts-v1", "@modelcontextprotocol/sdk/client/websocket.js");
const { CallToolResultSchema, ElicitRequestSchema } = await load("ts-v1", "@modelcontextprotocol/sdk/types.js");

async function connect(url) {
  const client = new Client({ name: "interop-v1-ws", version: "1.0.0" }, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => answerBlue(params.message));
  const address = new URL(url);
  address.protocol = "ws:";
  const transport = new WebSocketClientTransport(address);
  // The transport does not tell the version, so it is read off the answer as it comes. And each message gets a turn of its
  // own: the SDK forgets who waits for progress with the answer, before it has told of progress in the same packet.
  let protocolVersion;
  const connecting = client.connect(transport);
  const hear = transport.onmessage;
  transport.onmessage = (message) => {
    protocolVersion ??= message.result?.protocolVersion;
    setImmediate(hear, message);
  };
  await connecting;
  return {
    protocolVersion,
    toolNames: async () => (await client.listTools()).tools.map((tool) => tool.name),
    call: async (name, args, options) =>
      textOf(await client.callTool({ name, arguments: args }, CallToolResultSchema, options)),
    close: () => client.close(),
  };
}

await main(connect, ["legacy"]);
