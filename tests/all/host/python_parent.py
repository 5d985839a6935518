"""A program with tools, written from the text of the protocol alone: asyncio, frames with a length in front,
one call at a time on a connection, no ids. `python3 python_parent.py SOCKET SCHEMA` serves until it is killed."""

import asyncio
import json
import os
import struct
import sys


async def call(name, arguments):
    if name == "echo":
        await asyncio.sleep(arguments.get("ms", 0) / 1000)
        return {"result": {"content": [{"type": "text", "text": arguments["text"]}], "isError": False}}
    if name == "fails":
        return {"error": {"message": "it cannot be done", "type": "ValueError"}}
    return {"error": {"message": f"Tool not found: {name}", "type": "ToolNotFoundError"}}


async def serve(reader, writer):
    try:
        while True:
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            request = json.loads(await reader.readexactly(length))
            if request["method"] != "call_tool":
                raise ValueError(request["method"])
            params = request["params"]
            answer = json.dumps(await call(params["name"], params["arguments"]), indent=1).encode()
            writer.write(struct.pack(">I", len(answer)) + answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main(socket, schema):
    tools = [
        {"name": name, "description": name, "input_schema": {"type": "object", "properties": {}}}
        for name in ("echo", "fails")
    ]
    with open(schema, "w") as file:
        json.dump(tools, file, indent=2)
    server = await asyncio.start_unix_server(serve, socket)
    os.chmod(socket, 0o600)
    print('{"ready": true}', flush=True)
    await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
