"""Open WebUI's own code that lists and calls the tools of MCP servers, for `schemas.py`: it reads and writes what
`schemas_client.py` does.

Run by the Python of `py-mcp2`, whose SDK is the one that Open WebUI requires. The code is that of its wheel, which the install
`open-webui` has: the module `utils/mcp/client.py` whole, and of `utils/middleware.py` the loop that names the tools and the
function that calls one. All the rest of Open WebUI is left out.
"""

import ast
import hashlib
import json
import os
import pathlib
import sys
import types

import schemas_client

CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
SOURCE = CACHE / "open-webui" / "open_webui"


def module(name: str, **members: object) -> None:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)


def load_client() -> type:
    """Its client of MCP servers, with the settings that it has by itself."""
    json_codec = types.SimpleNamespace(loads=json.loads, dumps=json.dumps, JSONDecodeError=json.JSONDecodeError)
    module("open_webui")
    module("open_webui.utils")
    module(
        "open_webui.env",
        AIOHTTP_CLIENT_SESSION_TOOL_SERVER_SSL=True,
        AIOHTTP_CLIENT_TIMEOUT_TOOL_SERVER=None,
        MCP_INITIALIZE_TIMEOUT=10,
    )
    module("open_webui.utils.json_codec", JSONCodec=json_codec)
    client = {"__name__": "open_webui.utils.mcp.client"}
    exec(compile((SOURCE / "utils/mcp/client.py").read_text(), "client.py", "exec"), client)
    return client["MCPClient"]


def load_naming():
    """The loop of `process_chat_payload` that makes tools of what a server lists, as a function."""
    tree = ast.parse((SOURCE / "utils/middleware.py").read_text())
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and ast.unparse(node.iter) == "tool_specs"]
    # The other loop over this name is about servers that the browser calls.
    [loop] = [loop for loop in loops if "mcp_tools_dict" in ast.unparse(loop)]
    shell = ast.parse("async def name_tools(client, server_id, tool_specs):\n    mcp_tools_dict = {}\n    return mcp_tools_dict")
    shell.body[0].body.insert(1, loop)
    scope = {"hashlib": hashlib}
    exec(compile(ast.fix_missing_locations(shell), "middleware.py", "exec"), scope)
    return scope["name_tools"]


def load_calling():
    """`execute_tool_call`, for which every tool is there as it is."""
    tree = ast.parse((SOURCE / "utils/middleware.py").read_text())
    [function] = [node for node in tree.body if getattr(node, "name", "") == "execute_tool_call"]

    async def as_it_is(function, extra_params):
        return function

    scope = {
        "JSONCodec": sys.modules["open_webui.utils.json_codec"].JSONCodec,
        "ast": ast,
        "resolve_tool_call": lambda tool_call, tools: None,
        "is_saved_chat_id": lambda chat: True,
        "get_updated_tool_function": as_it_is,
    }
    exec(compile(ast.unparse(function), "middleware.py", "exec"), scope)
    return scope["execute_tool_call"]


MCPClient, name_tools, execute_tool_call = load_client(), load_naming(), load_calling()


async def call(tools: dict, name: str, arguments: dict) -> dict:
    wanted = {"id": "1", "function": {"name": name, "arguments": json.dumps(arguments)}}
    _, result, *_ = await execute_tool_call({}, {"tools": tools}, None, wanted)
    if isinstance(result, dict) and "error" in result:
        return {"error": result["error"]}
    if not isinstance(result, list):
        return {"error": str(result)}
    return {"text": result[0]["text"], "structured": None}


async def look_at(server: dict) -> dict:
    client = MCPClient()
    await client.connect(server["url"])
    try:
        specs = await client.list_tool_specs()
        tools = await name_tools(client, "srv", specs)
        # It has names of its own for them, and one for two with the same name.
        originals = {name: spec["name"] for spec in specs for name in await name_tools(client, "srv", [spec])}
        calls = {
            originals[name]: await call(tools, name, server["calls"][originals[name]])
            for name in tools
            if originals[name] in server["calls"]
        }
        # What is sent to the model's service.
        sent = json.loads(json.dumps({name: tool["spec"] for name, tool in tools.items()}))
        shown = [{"name": originals[name], "inputSchema": spec["parameters"]} for name, spec in sent.items()]
        return {"tools": shown, "calls": calls}
    finally:
        await client.disconnect()


if __name__ == "__main__":
    schemas_client.main(look_at)
