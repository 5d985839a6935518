"""Replicas of the bridge that share one jobs directory, and clients of the modern era to call them.

For the tests of this folder and for `scripts/load.py`. Standard library and loopback only.
"""

import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import typing
import urllib.parse

START_SECONDS = 20
STOP_SECONDS = 30
REVISION = "2026-07-28"


class Replica:
    """One bridge, listening on an address of this machine."""

    def __init__(
        self, program: pathlib.Path, directory: pathlib.Path, listen: str, servers: dict, settings: dict
    ) -> None:
        self.listen = listen
        self.log: list[str] = []
        self.directory = directory
        directory.mkdir(parents=True)
        config = directory / "servers.json"
        config.write_text(json.dumps({"mcpServers": servers}, indent=2))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MCPO_")}
        self.command = [program, "serve", "--config", config, "--listen", listen]
        self.environment = inherited | {"MCPO_STATE_DIR": str(directory / "state")} | settings
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.is_listening = threading.Event()
        for output in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self.read_log, args=[output, self.is_listening], daemon=True).start()

    def read_log(self, output: typing.TextIO, is_listening: threading.Event) -> None:
        for line in output:
            self.log.append(line.rstrip("\n"))
            if re.search(r"listening on http://", line):
                is_listening.set()
        is_listening.set()

    def restart(self) -> list[str]:
        """Ends it as an update does, starts it again, and waits until it says that it is ready."""
        complaints = self.stop()
        self.start()
        self.wait_until_ready()
        return complaints

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        self.is_listening.wait(START_SECONDS)
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with Client(f"http://{self.listen}") as client, client.send("GET", "/ready") as response:
                    response.read()
                    if response.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.05)
        raise SystemExit(f"the replica at {self.listen} did not start:\n" + "\n".join(self.log[-20:]))

    def kill(self) -> None:
        """As if the machine had taken it: no goodbye."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> list[str]:
        """Ends it and says what was wrong with its end."""
        if self.process.poll() is not None:
            ended = self.process.returncode
            return [] if ended == -signal.SIGKILL else [f"the replica at {self.listen} ended by itself: {ended}"]
        self.process.terminate()
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return [f"the replica at {self.listen} still ran {STOP_SECONDS} s after SIGTERM"]
        return [f"the replica at {self.listen} ended with status {status}"] if status else []

    def owns(self, pid: int) -> bool:
        """Whether the process was started by this replica, however far down. Linux only."""
        while pid > 1:
            if pid == self.process.pid:
                return True
            try:
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
            except OSError:
                return False
            pid = int(re.search(r"^PPid:\s+(\d+)", status, re.M)[1])
        return False


class CallFailed(Exception):
    """The answer was not the result of a tool."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text[:300]}")
        self.status = status


class Client:
    """One connection to the bridge or to nginx, kept open between calls."""

    def __init__(
        self,
        url: str,
        headers: dict | None = None,
        source: str | None = None,
        trust: str | None = None,
        timeout: float = 60,
    ):
        parts = urllib.parse.urlsplit(url)
        self.headers = headers or {}
        options = {"timeout": timeout, "source_address": (source, 0) if source else None}
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=trust)
            self.connection = http.client.HTTPSConnection(parts.hostname, parts.port, context=context, **options)
        else:
            self.connection = http.client.HTTPConnection(parts.hostname, parts.port, **options)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_) -> None:
        self.connection.close()

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict | None = None):
        """The response, its body still to be read."""
        self.connection.request(method, path, body, self.headers | (headers or {}))
        # Small requests must not wait for the acknowledgement of the last answer.
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.connection.getresponse()

    def status(self, method: str, path: str) -> int:
        with self.send(method, path) as response:
            response.read()
            return response.status

    def call(self, server: str, tool: str, arguments: dict | None = None, headers: dict | None = None) -> dict:
        """The result of a tool, by a request of the modern era."""
        body, own = modern_call(tool, arguments or {})
        with self.send("POST", f"/mcp/{server}", body, own | (headers or {})) as response:
            data = response.read()
            answer = parse_answer(response.headers.get_content_type(), data)
        if response.status != 200 or answer is None or "result" not in answer:
            raise CallFailed(response.status, data.decode(errors="replace"))
        return answer["result"]

    def text(self, server: str, tool: str, arguments: dict | None = None, headers: dict | None = None) -> str:
        return self.call(server, tool, arguments, headers)["content"][0]["text"]


def modern_call(tool: str, arguments: dict, progress: str | None = None) -> tuple[bytes, dict]:
    """The body and the headers of one `tools/call`."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "deploy", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    if progress:
        meta["progressToken"] = progress
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": REVISION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    return body, headers


def parse_answer(content_type: str, data: bytes) -> dict | None:
    """The message that answers: the body itself, or the last event of a stream that has a result or an error."""
    try:
        if content_type != "text/event-stream":
            return json.loads(data)
        lines = [line[5:] for line in data.decode().splitlines() if line.startswith("data:") and line[5:].strip()]
        messages = [json.loads(line) for line in lines]
        return next((message for message in reversed(messages) if "id" in message), None)
    except ValueError:
        return None


class Session:
    """A legacy session: `initialize`, calls, and `DELETE` at its end."""

    def __init__(self, client: Client, server: str) -> None:
        self.client = client
        self.path = f"/mcp/{server}"
        info = {"name": "deploy", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        with self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, {}) as response:
            response.read()
            if response.status != 200:
                raise CallFailed(response.status, "no session was opened")
            self.own = {"Mcp-Session-Id": response.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
        with self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}) as response:
            response.read()

    def post(self, message: dict, headers: dict | None = None):
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        } | (self.own if headers is None else headers)
        return self.client.send("POST", self.path, json.dumps(message).encode(), headers)

    def call(self, tool: str, arguments: dict | None = None) -> dict:
        params = {"name": tool, "arguments": arguments or {}}
        with self.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}) as response:
            data = response.read()
            answer = parse_answer(response.headers.get_content_type(), data)
        if answer is None or "result" not in answer:
            raise CallFailed(response.status, data.decode(errors="replace"))
        return answer["result"]

    def text(self, tool: str, arguments: dict | None = None) -> str:
        return self.call(tool, arguments)["content"][0]["text"]

    def delete(self) -> int:
        with self.client.send("DELETE", self.path, None, self.own) as response:
            response.read()
            return response.status


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as listener:
        listener.bind((host, 0))
        return listener.getsockname()[1]
