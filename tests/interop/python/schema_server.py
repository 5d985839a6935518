#!/usr/bin/env python3
"""A server whose tools are fixtures of crates/schema/fixtures, one fault each, exactly as they stand there.

    schema_server.py S005-tuple                    the tool `good`, and the broken tool of this fixture
    schema_server.py S005-tuple=healthy            the same as its author should have written it
    schema_server.py S001-no-input=0               its first further form, the first of "also"
    schema_server.py S001-no-input S002-root-type  several
    schema_server.py --http                        each at its own address, http://127.0.0.1:PORT/S005-tuple=healthy, and
                                                   with the protocol 2026-07-28 at http://127.0.0.1:PORT/modern/S005-tuple=healthy
    schema_server.py --ws S005-tuple               the same as the first, as an application that is behind a WebSocket

It speaks MCP with `initialize` and uses no SDK: those would not say what is wrong. A call is answered with its arguments as a
text, or with what the fixture says under "results". With --http and --ws the address is on the first line of standard output; --ws takes the
package `websockets`, which the install `py-mcp1` has.
"""

import functools
import http.server
import json
import pathlib
import sys
import urllib.parse

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "crates" / "schema" / "fixtures"
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
FOR_A_WHILE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
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
    def __init__(self, words: list[str], is_modern: bool = False) -> None:
        self.tools, self.results, self.faults, self.lists = [GOOD], {}, set(), 0
        self.is_modern = is_modern
        for word in words:
            tools, result, fault = form_of(word)
            self.tools += tools
            self.faults.add(fault)
            self.results |= {tool["name"]: result for tool in tools if result and "name" in tool}

    def answer(self, method: str, params: dict) -> dict:
        if not self.is_modern:
            return self.answer_legacy(method, params)
        if method == "server/discover":
            return FOR_A_WHILE | {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        if method == "tools/list":
            return FOR_A_WHILE | self.list()
        return {"resultType": "complete"} | self.answer_legacy(method, params)

    def answer_legacy(self, method: str, params: dict) -> dict:
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


def answer_to(server: Server, message: dict) -> bytes | None:
    """The answer to a request; a notification has none."""
    if "id" not in message or "method" not in message:
        return None
    try:
        said = {"result": server.answer(message["method"], message.get("params") or {})}
    except LookupError as refusal:
        code, text = refusal.args
        said = {"error": {"code": code, "message": text}}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}, ensure_ascii=False).encode()


@functools.cache
def server_at(path: str) -> Server:
    *modern, words = urllib.parse.unquote(path).strip("/").split("/")
    return Server([words], is_modern=bool(modern))


class Handler(http.server.BaseHTTPRequestHandler):
    """Streamable HTTP without sessions and streams."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = answer_to(server_at(self.path), message)
        self.reply(202 if answer is None else 200, answer or b"")

    def do_GET(self) -> None:
        self.reply(405, b"")

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


class HttpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address) -> None:
        """Clients may leave when they like."""


def serve_http() -> None:
    server = HttpServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


def serve_websocket(words: list[str]) -> None:
    from websockets.sync.server import serve

    def answer_all(connection) -> None:
        server = Server(words)
        for text in connection:
            answer = answer_to(server, json.loads(text))
            if answer is not None:
                connection.send(answer.decode())

    with serve(answer_all, "127.0.0.1", 0, subprotocols=["mcp"], max_size=None) as server:
        print(f"ws://127.0.0.1:{server.socket.getsockname()[1]}", flush=True)
        server.serve_forever()


def main() -> None:
    if sys.argv[1:] == ["--http"]:
        return serve_http()
    if sys.argv[1:2] == ["--ws"]:
        return serve_websocket(sys.argv[2:])
    server = Server(sys.argv[1:])
    for line in sys.stdin.buffer:
        answer = answer_to(server, json.loads(line))
        if answer is not None:
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
