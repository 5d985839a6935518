"""Chats of people with Open WebUI's own code, for `open_webui_chats.py`: what it makes of TOOL_SERVER_CONNECTIONS and of other variables
of its own, and what its backend does in each turn of a chat, for MCP and for OpenAPI servers.

Reads `{"turns": [[turn, …], …]}`; the turns of one list go on at the same time. A turn is
`{"user": …, "chat": …, "server": …, "calls": [{"tool": …, "arguments": …}, …]}`: it connects, lists, calls one after the other, and ends.
A call may have to be made again `until` its answer has this in it, and other turns may wait for it: `after` and `then` name what they wait
for. Writes `{"turns": [[{"tools": …, "told": …, "texts": …} or {"error": …}, …], …]}`, as well as what it has of `connections` and which
version of the `sdk`.

The code is that of `config.py` that reads the variable, the form of `routers/configs.py` with which administrators see and save connections,
of `utils/tools.py` what connects MCP servers and makes tools of OpenAPI servers, with the headers of `utils/headers.py` and the grants of
`utils/access_control`, and that of `open_webui_code.py`. People are users, not administrators.
"""

import asyncio
import base64
import contextlib
import copy
import importlib.metadata
import json
import logging
import os
import re
import string
import sys
import time
import types
import typing
import urllib.parse

import jwt
import pydantic

import open_webui_code as code

ATTEMPT_SECONDS, ATTEMPTS = 0.1, 200
LOG = logging.getLogger("open_webui")


class Mistake:
    """In place of a log whose errors are lost: what it is told of ends this program."""

    def exception(self, message: str, *_) -> typing.NoReturn:
        raise SystemExit(message)


class Config:
    """The settings of a first start."""

    @staticmethod
    async def get(key: str, default: object = None) -> object:
        assert key == "tool_server.connections", key
        return CONNECTIONS


class Groups:
    @staticmethod
    async def get_groups_by_member_id(*_, **__) -> list:
        return []


class Tools:
    @staticmethod
    async def get_tools_by_ids(ids: list) -> dict:
        return {}


CONNECTIONS = code.load(
    "config.py", ["tool_server_connections", "TOOL_SERVER_CONNECTIONS"], {"JSONCodec": code.CODEC, "log": Mistake(), "os": os}
)["TOOL_SERVER_CONNECTIONS"]
FORMS = code.load(
    "routers/configs.py",
    ["ToolServerConnection", "ToolServersConfigForm"],
    {"BaseModel": pydantic.BaseModel, "ConfigDict": pydantic.ConfigDict},
)
FORM = FORMS["ToolServersConfigForm"]
FORM.model_rebuild(_types_namespace=FORMS)
SETTINGS = [
    "ENABLE_FORWARD_USER_INFO_HEADERS",
    "FORWARD_SESSION_INFO_HEADER_CHAT_ID",
    "FORWARD_SESSION_INFO_HEADER_MESSAGE_ID",
    "FORWARD_USER_INFO_HEADER_AUTH_TYPE",
    "FORWARD_USER_INFO_HEADER_JWT",
    "FORWARD_USER_INFO_HEADER_JWT_EXPIRES_SECONDS",
    "FORWARD_USER_INFO_HEADER_JWT_SECRET",
    "FORWARD_USER_INFO_HEADER_USER_EMAIL",
    "FORWARD_USER_INFO_HEADER_USER_ID",
    "FORWARD_USER_INFO_HEADER_USER_NAME",
    "FORWARD_USER_INFO_HEADER_USER_ROLE",
]
COMMON = {"Any": typing.Any, "JSONCodec": code.CODEC, "log": LOG, "re": re}
ENVIRONMENT = code.load("env.py", SETTINGS, {"os": os})
HEADERS = code.load(
    "utils/headers.py",
    [
        "USER_GROUPS_PLACEHOLDERS",
        "normalize_bearer_token",
        "bearer_auth_header",
        "_mint_forward_user_jwt",
        "include_user_info_headers",
        "custom_headers_require_user_groups",
        "get_user_groups_for_custom_headers",
        "get_custom_headers",
        "parse_custom_headers",
    ],
    COMMON | ENVIRONMENT | {"Groups": Groups, "jwt": jwt, "punctuation": string.punctuation, "quote": urllib.parse.quote, "time": time},
)
ACCESS = code.load("utils/access_control/__init__.py", ["has_access", "has_connection_access"], {"Groups": Groups})
ALLOWED = code.load("utils/misc.py", ["_strip_filter_entry", "get_allow_block_lists", "is_string_allowed"], dict(COMMON))
CALLING = code.load_calling()
# Not even administrators are allowed what was not granted.
code.module("open_webui.config", BYPASS_ADMIN_ACCESS_CONTROL=False)
name_tools = code.load_naming()
[KIND] = {connection["type"] for connection in CONNECTIONS}


def load_tools() -> dict:
    names = ["build_tool_server_headers", "connect_mcp_server"]
    scope = COMMON | ENVIRONMENT | HEADERS | ACCESS | ALLOWED
    scope |= {"Config": Config, "ENABLE_TOOLS": True, "ENABLE_TOOL_SERVERS": True, "Groups": Groups, "Tools": Tools}
    if KIND == "mcp":
        scope["MCPClient"] = code.load_client()
    else:
        import aiohttp
        import yaml

        names += ["OPENAPI_HTTP_METHODS", "clean_properties", "clean_openai_tool_schema", "add_terminal_display_file_inline_param"]
        names += ["resolve_schema", "convert_openapi_to_tool_payload", "get_tool_server_data", "get_tool_servers_data"]
        names += ["execute_tool_server", "get_tool_server_url", "set_tool_servers", "get_tool_servers", "get_tools"]
        scope |= {"aiohttp": aiohttp, "asyncio": asyncio, "base64": base64, "copy": copy, "yaml": yaml}
        scope |= {"quote": urllib.parse.quote, "urlencode": urllib.parse.urlencode}
        scope |= {"get_async_tool_function_and_apply_extra_params": code.as_it_is, "AIOHTTP_CLIENT_ALLOW_REDIRECTS": False}
        scope |= {"AIOHTTP_CLIENT_SESSION_TOOL_SERVER_SSL": True, "AIOHTTP_CLIENT_TIMEOUT_TOOL_SERVER": None}
        scope |= {"AIOHTTP_CLIENT_TIMEOUT_TOOL_SERVER_DATA": 10}
    return code.load("utils/tools.py", names, scope)


TOOLS = load_tools()


async def answer_blue(event: dict) -> dict:
    """What a person in the browser answers to a form."""
    assert event["type"] == "request:elicitation", event
    return {"action": "accept", "content": {"answer": "blue"}}


async def text_of(tools: dict, tool: str, arguments: dict) -> str:
    """What the model reads of a call that it made."""
    wanted = {"id": "1", "function": {"name": tool, "arguments": json.dumps(arguments)}}
    _, result, called, kind, _ = await CALLING["execute_tool_call"]({}, {"tools": tools}, None, wanted)
    if called is None:
        return str(result)
    text, *_ = await CALLING["process_tool_result"](None, tool, result, kind)
    return text


async def call(tools: dict, wanted: dict, moments: dict) -> str:
    """Makes a call, again until its answer is what is waited for, with others that wait."""

    def moment(name: str) -> asyncio.Event:
        return moments.setdefault(name, asyncio.Event())

    if "after" in wanted:
        await moment(wanted["after"]).wait()
    for _ in range(ATTEMPTS if "until" in wanted else 1):
        text = await text_of(tools, wanted["tool"], wanted["arguments"])
        if wanted.get("until", "") in text:
            break
        await asyncio.sleep(ATTEMPT_SECONDS)
    if "then" in wanted:
        moment(wanted["then"]).set()
    return text


async def turn(it: dict, moments: dict) -> dict:
    name = it["user"]
    user = types.SimpleNamespace(id=f"id-of-{name}", name=name, email=f"{name}@example.org", role="user")
    metadata = {"chat_id": it["chat"], "message_id": f"message-{time.monotonic_ns()}", "session_id": "browser"}
    extra = {"__metadata__": metadata, "__event_call__": answer_blue}
    request = types.SimpleNamespace(cookies={}, app=types.SimpleNamespace(state=types.SimpleNamespace(redis=None)))
    if KIND == "openapi":
        tools = await TOOLS["get_tools"](request, [f"server:{it['server']}"], user, extra)
        return await told_of(tools, "", it, moments)
    connected = await TOOLS["connect_mcp_server"](request, it["server"], user, extra)
    if connected is None:
        return {"error": "Open WebUI does not connect this server"}
    client, specs = connected
    try:
        return await told_of(await name_tools(client, it["server"], specs), client.instructions, it, moments)
    finally:
        await client.disconnect()


async def told_of(tools: dict, instructions: str | None, it: dict, moments: dict) -> dict:
    texts = [await call(tools, wanted, moments) for wanted in it["calls"]]
    return {"tools": list(tools), "told": instructions, "texts": texts}


async def whole(it: dict, moments: dict) -> dict:
    try:
        async with asyncio.timeout(60):
            return await turn(it, moments)
    except BaseException as error:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return {"error": f"{type(error).__name__}: {error}"}


async def main() -> None:
    asked = json.load(sys.stdin)
    FORM(TOOL_SERVER_CONNECTIONS=CONNECTIONS)
    moments: dict[str, asyncio.Event] = {}
    turns = [await asyncio.gather(*(whole(it, moments) for it in together)) for together in asked["turns"]]
    sdk = "none"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        sdk = importlib.metadata.version("mcp")
    json.dump({"connections": CONNECTIONS, "sdk": sdk, "turns": turns}, sys.stdout)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main())
