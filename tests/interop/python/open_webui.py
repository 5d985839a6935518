"""Open WebUI's own code that lists and calls the tools of MCP servers, for `schemas.py`: it reads and writes what
`schemas_client.py` does.

Run by the Python of `py-mcp2`, whose SDK is the one that Open WebUI requires. The code is that of its wheel (`open_webui_code.py`): the
module `utils/mcp/client.py` whole, and of `utils/middleware.py` the loop that names the tools and the function that calls one.
"""

import json

import open_webui_code
import schemas_client

MCPClient, name_tools = open_webui_code.load_client(), open_webui_code.load_naming()
execute_tool_call = open_webui_code.load_calling()["execute_tool_call"]


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
