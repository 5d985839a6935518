#!/usr/bin/env python3
"""A server whose tools are fixtures of crates/schema/fixtures, one fault each, exactly as they stand there.

    schema_server.py S005-tuple                    the tool `good`, and the broken tool of this fixture
    schema_server.py S005-tuple=healthy            the same as its author should have written it
    schema_server.py S001-no-input=0               its first further form, the first of "also"
    schema_server.py S001-no-input S002-root-type  several

It speaks MCP with `initialize`, one JSON text in a line, and uses no SDK: those would not say what is wrong. A call is answered
with its arguments as a text, or with what the fixture says under "results".
"""

import json
import pathlib
import sys

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "crates" / "schema" / "fixtures"
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
GOOD = {
    "name": "good",
    "description": "Says what it is told.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def fixture(name: str) -> dict:
    return json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))


def form_of(word: str) -> tuple[list, dict | None, str]:
    """The tools that a word of the command line names, what their calls are answered, and their fault."""
    name, _, form = word.partition("=")
    told = fixture(name)
    tools = told["also"][int(form)] if form.isdigit() else told[form or "broken"]
    results = told.get("results", {})
    result = results.get("also") or results.get("broken") if form.isdigit() else results.get(form or "broken")
    fault = "" if form == "healthy" else told["fault"]
    return (tools if isinstance(tools, list) else [tools]), result, fault


class Server:
    def __init__(self, words: list[str]) -> None:
        self.tools, self.results, self.faults, self.lists = [GOOD], {}, set(), 0
        for word in words:
            tools, result, fault = form_of(word)
            self.tools += tools
            self.faults.add(fault)
            self.results |= {tool["name"]: result for tool in tools if result and "name" in tool}

    def answer(self, method: str, params: dict) -> dict:
        if method == "initialize":
            version = params.get("protocolVersion")
            return {
                "protocolVersion": version if version in VERSIONS else VERSIONS[-1],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "schemas", "version": "1"},
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return self.list()
        if method == "tools/call":
            return self.call(params.get("name"), params.get("arguments"))
        raise LookupError(-32601, f"no method {method}")

    def list(self) -> dict:
        self.lists += 1
        if "S026/order" in self.faults and self.lists % 2 == 0:
            return {"tools": self.tools[::-1]}
        if "S029/pages" in self.faults:
            return {"tools": self.tools, "nextCursor": "again"}
        return {"tools": self.tools}

    def call(self, name: str, arguments: object) -> dict:
        if not any(tool.get("name") == name for tool in self.tools):
            raise LookupError(-32602, f"no tool {name}")
        if name in self.results:
            return self.results[name]
        return {"content": [{"type": "text", "text": json.dumps(arguments, ensure_ascii=False)}]}


def main() -> None:
    server = Server(sys.argv[1:])
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        try:
            said = {"result": server.answer(message["method"], message.get("params") or {})}
        except LookupError as refusal:
            code, text = refusal.args
            said = {"error": {"code": code, "message": text}}
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}, ensure_ascii=False)
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
