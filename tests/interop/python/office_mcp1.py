"""One turn of a chat by the `mcp` 1 SDK: a session is opened, tools are called, the session is deleted.

    office_mcp1.py URL < {"headers": {...}, "calls": [["tool", {...}], ...]}

Prints the results as JSON. The checks are in `../office.py`.
"""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


async def turn(url: str, headers: dict, calls: list) -> list:
    async with create_mcp_http_client(headers=headers) as client:
        async with streamable_http_client(url, http_client=client) as (reader, writer, session_id):
            async with ClientSession(reader, writer) as session:
                await session.initialize()
                assert session_id(), "the legacy era without a session proves nothing here"
                results = [await session.call_tool(tool, arguments) for tool, arguments in calls]
    return [result.model_dump(mode="json", by_alias=True, exclude_none=True) for result in results]


asked = json.load(sys.stdin)
print(json.dumps(asyncio.run(turn(sys.argv[1], asked["headers"], asked["calls"]))))
