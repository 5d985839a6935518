"""A server on standard input and output with two tools: `open` answers, and the report of `make_report` never comes."""

import json
import sys

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("open", "make_report")]

for line in sys.stdin:
    message = json.loads(line)
    asked, parameters = message.get("method"), message.get("params", {})
    if "id" not in message or parameters.get("name") == "make_report":
        continue
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "slides", "version": "1"}},
        "tools/list": {"tools": TOOLS},
        "tools/call": {"content": [{"type": "text", "text": "It is open."}]},
    }
    answer = {"result": results[asked]} if asked in results else {"error": {"code": -32601, "message": f"there is no {asked}"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
