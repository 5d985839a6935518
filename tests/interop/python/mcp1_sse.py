"""The `mcp` 1 SDK over the deprecated HTTP+SSE transport."""

from contextlib import asynccontextmanager

import checks
from mcp import ClientSession, types
from mcp.client.sse import sse_client
from mcp1 import Connection


@asynccontextmanager
async def connect(url: str, era: str):
    async def elicit(context, params):
        return types.ElicitResult(action="accept", content=await checks.answer_blue(params.message))

    async with sse_client(url) as (reader, writer):
        async with ClientSession(reader, writer, elicitation_callback=elicit) as session:
            opened = await session.initialize()
            yield Connection(session, opened.protocolVersion)


if __name__ == "__main__":
    checks.main(connect, ["legacy"])
