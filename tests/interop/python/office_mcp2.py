"""One turn of a chat by the `mcp` 2 SDK, which probes first, as Open WebUI's newest version does.

    office_mcp2.py URL < {"headers": {...}, "calls": [["tool", {...}], ...]}

Prints the results as JSON. The checks are in `../office.py`.
"""

import asyncio
import json
import sys

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


async def turn(url: str, headers: dict, calls: list) -> list:
    async with create_mcp_http_client(headers=headers) as http:
        async with Client(streamable_http_client(url, http_client=http), mode="auto") as client:
            assert client.protocol_version >= "2026-07-28", f"fell back to {client.protocol_version}"
            results = [await client.call_tool(tool, arguments) for tool, arguments in calls]
    return [result.model_dump(mode="json", by_alias=True, exclude_none=True) for result in results]


asked = json.load(sys.stdin)
print(json.dumps(asyncio.run(turn(sys.argv[1], asked["headers"], asked["calls"]))))
