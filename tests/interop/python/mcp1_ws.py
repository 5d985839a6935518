"""The `mcp` 1 SDK over its WebSocket transport."""

import warnings
from contextlib import asynccontextmanager

import checks
from mcp import ClientSession, types
from mcp1 import Connection

# The SDK says at each connection that its next version has no WebSocket.
warnings.simplefilter("ignore", DeprecationWarning)

from mcp.client.websocket import websocket_client  # noqa: E402

# Its library takes no message over 1 MiB, and the SDK does not let one say otherwise.
checks.BIG_BYTES = 1000 * 1024


@asynccontextmanager
async def connect(url: str, era: str):
    async def elicit(context, params):
        return types.ElicitResult(action="accept", content=await checks.answer_blue(params.message))

    async with websocket_client(url.replace("http:", "ws:", 1)) as (reader, writer):
        async with ClientSession(reader, writer, elicitation_callback=elicit) as session:
            opened = await session.initialize()
            yield Connection(session, opened.protocolVersion)


if __name__ == "__main__":
    checks.main(connect, ["legacy"])
