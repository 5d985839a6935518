"""A client of the Python SDK that lists and calls the tools of many servers, for `schemas.py` and `faults.py`.

Run by the Python of `py-mcp1` or `py-mcp2`: it uses the SDK that is there. It reads {"server": {"url" or "command": …, "calls": {"tool": arguments}}}
and writes {"server": {"tools": […], "calls": {"tool": result}}}, or {"server": {"error": …}} where the tools could not be listed. A list of
arguments is as many calls at once, with a list of results.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from importlib.metadata import version

IS_NEW = not version("mcp").startswith("1.")
# Servers at once.
AT_ONCE = 8


@asynccontextmanager
async def connect(server: dict):
    """A client of a server at a URL, or of a command over standard input and output."""
    from mcp import StdioServerParameters

    command = server.get("command")
    program = StdioServerParameters(command=command[0], args=command[1:]) if command else None
    url = server.get("url")
    if IS_NEW:
        from mcp import Client

        async with Client(program or url) as client:
            yield client
        return
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    async with stdio_client(program) if program else streamable_http_client(url) as (reader, writer, *_):
        async with ClientSession(reader, writer) as session:
            await session.initialize()
            yield session


async def call(client, tool: str, arguments: dict) -> dict:
    try:
        result = await client.call_tool(tool, arguments)
    except Exception as error:  # The SDK's own too.
        return {"error": f"{type(error).__name__}: {error}"}
    told = result.model_dump(mode="json", by_alias=True)
    text = "".join(block.get("text", "") for block in told["content"])
    if told["isError"]:
        return {"error": text}
    return {"text": text, "structured": told.get("structuredContent")}


async def calls_of(client, tool: str, arguments: dict | list) -> dict | list:
    if isinstance(arguments, list):
        return await asyncio.gather(*(call(client, tool, one) for one in arguments))
    return await call(client, tool, arguments)


async def look_at(server: dict) -> dict:
    async with connect(server) as client:
        listed = await client.list_tools()
        tools = [tool.model_dump(mode="json", by_alias=True, exclude_unset=True) for tool in listed.tools]
        wanted = [tool["name"] for tool in tools if tool["name"] in server["calls"]]
        calls = {name: await calls_of(client, name, server["calls"][name]) for name in wanted}
        return {"tools": tools, "calls": calls}


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def look_at_all(servers: dict, look_at) -> dict:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(server: dict) -> dict:
        async with gate:
            try:
                async with asyncio.timeout(server["seconds"]):
                    return await look_at(server)
            except BaseException as error:
                error = innermost(error)
                return {"error": f"{type(error).__name__}: {error}"}

    return dict(zip(servers, await asyncio.gather(*(one(server) for server in servers.values()))))


def main(look_at) -> None:
    json.dump(asyncio.run(look_at_all(json.load(sys.stdin), look_at)), sys.stdout)


if __name__ == "__main__":
    main(look_at)
