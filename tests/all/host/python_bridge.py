"""A bridge's half of the protocol, from its text alone: `python3 python_bridge.py SOCKET kept|each` makes calls
over one kept connection, or over a new one for each, and prints what it got as one JSON line."""

import asyncio
import json
import struct
import sys


async def call(reader, writer, name, arguments):
    request = json.dumps({"method": "call_tool", "params": {"name": name, "arguments": arguments}}).encode()
    writer.write(struct.pack(">I", len(request)) + request)
    await writer.drain()
    (length,) = struct.unpack(">I", await reader.readexactly(4))
    return json.loads(await reader.readexactly(length))


async def main(socket, how):
    answers = []
    kept = await asyncio.open_unix_connection(socket)
    for name, arguments in [("echo", {"text": "ほ"}), ("fails", {}), ("none", {}), ("echo", {"text": "x" * 200000})]:
        streams = kept if how == "kept" else await asyncio.open_unix_connection(socket)
        answers.append(await call(*streams, name, arguments))
        if how == "each":
            streams[1].close()
    print(json.dumps({"answers": answers}), flush=True)


asyncio.run(main(*sys.argv[1:]))
