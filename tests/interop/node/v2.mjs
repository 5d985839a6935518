// @modelcontextprotocol/client 2, which speaks both eras and opens with the legacy one by default.
//
// Eras: `modern` is the mode `auto`, `pinned` refuses to fall back, `legacy` is the default.

import { load } from "./packages.mjs";
import { answerBlue, main, textOf } from "./checks.mjs";

const { Client, StreamableHTTPClientTransport } = await load("ts-v2", "@modelcontextprotocol/client");

const NEGOTIATION = {
  legacy: undefined,
  modern: { mode: "auto" },
  pinned: { mode: { pin: "2026-07-28" } },
};

async function connect(url, era) {
  const client = new Client(
    { name: "interop-v2", version: "1.0.0" },
    { capabilities: { elicitation: {} }, versionNegotiation: NEGOTIATION[era] },
  );
  client.setRequestHandler("elicitation/create", ({ params }) => answerBlue(params.message));
  const transport = new StreamableHTTPClientTransport(url);
  await client.connect(transport);
  return {
    protocolVersion: client.getNegotiatedProtocolVersion(),
    toolNames: async () => (await client.listTools()).tools.map((tool) => tool.name),
    // Aborting posts `notifications/cancelled` in the legacy era and closes the stream in the modern one.
    call: async (name, args, options) => textOf(await client.callTool({ name, arguments: args }, options)),
    close: async () => {
      await transport.terminateSession();
      await client.close();
    },
  };
}

await main(connect, ["legacy", "modern", "pinned"]);
