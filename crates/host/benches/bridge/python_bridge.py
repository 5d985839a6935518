"""A bridge as short as Python allows, with nothing imported but the standard library: `python_bridge.py SOCKET SCHEMA`."""

import json
import socket
import struct
import sys

with open(sys.argv[2]) as schema:
    tools = [{"name": t["name"], "inputSchema": t["input_schema"]} for t in json.load(schema)]
program = None
for line in sys.stdin.buffer:
    message = json.loads(line)
    if message["method"] == "tools/list":
        result = {"tools": tools}
    else:
        if program is None:
            program = socket.socket(socket.AF_UNIX)
            program.connect(sys.argv[1])
            answers = program.makefile("rb")
        request = json.dumps({"method": "call_tool", "params": message["params"]}).encode()
        program.sendall(struct.pack(">I", len(request)) + request)
        (length,) = struct.unpack(">I", answers.read(4))
        result = json.loads(answers.read(length))["result"]
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
