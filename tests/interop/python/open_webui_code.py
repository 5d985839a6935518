"""Parts of Open WebUI's own code, out of the wheel of the install `open-webui`, or of the one that `OPEN_WEBUI` names.

A part is a few definitions of one file, run with what they use of the rest, which is left out: its settings are those that it has by
itself, unless environment variables say otherwise, as with itself.
"""

import __future__
import ast
import hashlib
import json
import logging
import os
import pathlib
import re
import sys
import types
import typing

CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
SOURCE = CACHE / os.environ.get("OPEN_WEBUI", "open-webui") / "open_webui"
CODEC = types.SimpleNamespace(loads=json.loads, dumps=json.dumps, JSONDecodeError=json.JSONDecodeError)


def load(file: str, names: list[str], scope: dict) -> dict:
    """These definitions of a file, and nothing else of it."""
    tree = ast.parse((SOURCE / file).read_text())
    found = {name: node for node in tree.body for name in names_of(node) if name in names}
    assert sorted(found) == sorted(names), f"{file} has no {set(names) - set(found)}"
    return run([node for node in tree.body if node in found.values()], file, scope)


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    # A setting that may be wrong is read under `try`.
    if isinstance(node, ast.Try):
        return [name for inner in node.body for name in names_of(inner)]
    return [getattr(node, "name", "")]


def run(nodes: list[ast.stmt], file: str, scope: dict) -> dict:
    scope.setdefault("__name__", f"open_webui.{file.removesuffix('.py').replace('/', '.')}")
    code = ast.fix_missing_locations(ast.Module(nodes, []))
    # What only annotations name need not be there.
    exec(compile(code, file, "exec", __future__.annotations.compiler_flag), scope)
    return scope


def module(name: str, **members: object) -> None:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)


def load_client() -> type:
    """Its client of MCP servers."""
    module("open_webui")
    module("open_webui.utils")
    module(
        "open_webui.env",
        AIOHTTP_CLIENT_SESSION_TOOL_SERVER_SSL=True,
        AIOHTTP_CLIENT_TIMEOUT_TOOL_SERVER=None,
        MCP_INITIALIZE_TIMEOUT=10,
    )
    module("open_webui.utils.json_codec", JSONCodec=CODEC)
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
    return run(shell.body, "utils/middleware.py", {"hashlib": hashlib})["name_tools"]


async def as_it_is(function, extra_params):
    return function


def load_calling() -> dict:
    """`execute_tool_call`, which calls what a model named, and for which every tool is there as it is; and `process_tool_result`, which
    makes of an answer what the model reads."""
    return load(
        "utils/middleware.py",
        ["execute_tool_call", "process_tool_result", "extract_base64_images", "BASE64_IMAGE_DATA_URI_RE"],
        {
            "Any": typing.Any,
            "HTMLResponse": type("HTMLResponse", (), {}),
            "JSONCodec": CODEC,
            "ast": ast,
            "json": json,
            "re": re,
            "get_updated_tool_function": as_it_is,
            "is_saved_chat_id": lambda chat: True,
            "log": logging.getLogger("open_webui"),
            "resolve_tool_call": lambda tool_call, tools: None,
        },
    )
