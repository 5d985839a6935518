"""Open WebUI's own code that loads and calls OpenAPI servers, for `open_webui.py`: it reads
`{name: {"url": …, "headers": …, "calls": [[operation, arguments], …]}}` and writes `{name: {"tools": …, "calls": …} or {"error": …}}`, each
call with its answer, the text that a model reads of it, and the files and pages that people see.

Run by the Python of the install `open-webui-client`. The code is that of Open WebUI's wheel (`open_webui_code.py`): of `utils/tools.py`
the functions that fetch documents, make tools of them and call those, and of `utils/middleware.py` those that call what a model named
and make a text of the answer.
"""

import asyncio
import base64
import copy
import json
import logging
import pathlib
import re
import sys
import typing
import urllib.parse

import aiohttp
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import open_webui_code  # noqa: E402

OF_TOOLS = [
    "OPENAPI_HTTP_METHODS",
    "clean_properties",
    "clean_openai_tool_schema",
    "add_terminal_display_file_inline_param",
    "resolve_schema",
    "convert_openapi_to_tool_payload",
    "get_tool_server_data",
    "get_tool_servers_data",
    "execute_tool_server",
    "get_tool_server_url",
]
SETTINGS = {
    "ENABLE_TOOL_SERVERS": True,
    "AIOHTTP_CLIENT_ALLOW_REDIRECTS": False,
    "AIOHTTP_CLIENT_SESSION_TOOL_SERVER_SSL": True,
    "AIOHTTP_CLIENT_TIMEOUT_TOOL_SERVER": None,
    "AIOHTTP_CLIENT_TIMEOUT_TOOL_SERVER_DATA": 10,
}

tools = open_webui_code.load(
    "utils/tools.py",
    OF_TOOLS,
    {
        "Any": typing.Any,
        "JSONCodec": open_webui_code.CODEC,
        "aiohttp": aiohttp,
        "asyncio": asyncio,
        "base64": base64,
        "copy": copy,
        "log": logging.getLogger("open_webui"),
        "quote": urllib.parse.quote,
        "re": re,
        "urlencode": urllib.parse.urlencode,
        "yaml": yaml,
        **SETTINGS,
    },
)
middleware = open_webui_code.load_calling()


def connection(name: str, server: dict) -> dict:
    """How an administrator adds a server."""
    key = server["headers"].get("Authorization", "").removeprefix("Bearer ")
    return {
        "type": "openapi",
        "url": server["url"],
        "path": "openapi.json",
        "auth_type": "bearer" if key else "none",
        "key": key,
        "config": {"enable": True},
        "info": {"id": name, "name": name, "description": ""},
    }


async def call(data: dict, headers: dict, spec: dict, arguments: dict) -> dict:
    async def function(**params):
        # As `get_tools` makes it, with the headers that the caller has.
        headers.setdefault("Content-Type", "application/json")
        return await tools["execute_tool_server"](
            url=data["url"], headers=headers, cookies={}, name=spec["name"], params=params, server_data=data
        )

    wanted = {"id": "1", "function": {"name": spec["name"], "arguments": json.dumps(arguments)}}
    known = {spec["name"]: {"callable": function, "spec": spec, "type": "external"}}
    _, result, *_ = await middleware["execute_tool_call"]({}, {"tools": known}, None, wanted)
    # The headers of the answer come along, for a result that is a page.
    answer = result[0] if isinstance(result, tuple) else result
    # It takes parts out of the answer.
    kept = copy.deepcopy(answer)
    text, files, embeds = await middleware["process_tool_result"](None, spec["name"], result, "external")
    return {"operation": spec["name"], "arguments": arguments, "answer": kept, "text": text, "files": files, "embeds": embeds}


async def look_at(name: str, server: dict) -> dict:
    try:
        loaded = await tools["get_tool_servers_data"]([connection(name, server)])
    except Exception as error:
        return {"error": f"the whole list of servers would be empty: {type(error).__name__}: {error}"}
    if not loaded:
        return {"error": "Open WebUI does not show the server"}
    [data] = loaded
    specs = [tools["clean_openai_tool_schema"](spec) for spec in data["specs"]]
    by_name = {spec["name"]: spec for spec in reversed(specs)}
    calls = [
        await call(data, dict(server["headers"]), by_name[operation], arguments)
        for operation, arguments in server["calls"]
        if operation in by_name
    ]
    return {"tools": specs, "calls": calls}


async def main() -> None:
    servers = json.load(sys.stdin)
    print(json.dumps({name: await look_at(name, server) for name, server in servers.items()}))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main())
