// @modelcontextprotocol/sdk 1, which knows the legacy era only.

import { load } from "./packages.mjs";
import { answerBlue, main, textOf } from "./checks.mjs";

const { Client } = await load("ts-v1", "@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = await load("ts-v1", "@modelcontextprotocol/sdk/client/streamableHttp.js");
const { CallToolResultSchema, ElicitRequestSchema } = await load("ts-v1", "@modelcontextprotocol/sdk/types.js");

async function connect(url) {
  const client = new Client({ name: "interop-v1", version: "1.0.0" }, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => answerBlue(params.message));
  const transport = new StreamableHTTPClientTransport(url);
  await client.connect(transport);
  return {
    protocolVersion: transport.protocolVersion,
    toolNames: async () => (await client.listTools()).tools.map((tool) => tool.name),
    // Aborting the signal posts `notifications/cancelled`; the response stream stays open.
    call: async (name, args, options) =>
      textOf(await client.callTool({ name, arguments: args }, CallToolResultSchema, options)),
    close: async () => {
      await transport.terminateSession();
      await client.close();
    },
  };
}

await main(connect, ["legacy"]);
