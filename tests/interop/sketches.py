#!/usr/bin/env python3
"""The sketches of an application's side in docs/live-app.md, as they stand there: run, and used straight and by `pontoon connect`.

    tests/interop/sketches.py --pontoon target/release/pontoon

The one in C++ is compiled where g++ and nlohmann/json are installed; where not, that is said.
Ends with `N passed, N failed`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
INSTALLS = ["node22", "app-node", "app-python"]
DOCUMENT = (REPOSITORY / "docs" / "live-app.md").read_text()
TOKEN = "a-token-for-sketches"
SECONDS = 30
CPP_MAIN = """
#include <iostream>
int main() {
    for (std::string line; std::getline(std::cin, line);)
        if (auto said = answer(line)) std::cout << *said << std::endl;
}
"""


def sketch(language: str, name: str) -> str:
    (found,) = re.findall(rf"```{language}\n((?://|#) {re.escape(name)}\n.*?)```", DOCUMENT, re.S)
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def running(command: list, directory: pathlib.Path):
    """An application that listens, and its port."""
    port = free_port()
    variables = {"PATH": os.environ["PATH"], "HOME": str(directory), "APP_TOKEN": TOKEN, "APP_PORT": str(port)}
    with subprocess.Popen(command, cwd=directory, env=variables) as app:
        try:
            wait_until("the application listens", lambda: can_connect(port) or app.poll() is not None)
            assert app.poll() is None, f"it ended with {app.returncode}"
            yield port
        finally:
            app.kill()


def can_connect(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def wait_until(what: str, holds) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.02)


class Peer:
    """One side of a conversation: `send` takes a text, `receive` gives the next."""

    def __init__(self, send, receive) -> None:
        self.send, self.receive, self.last = send, receive, 0

    def notify(self, method: str, params: dict | None = None) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}}))

    def ask(self, method: str, params: dict | None = None, strict: bool = True) -> dict:
        """The answer, which has to be the next that comes if `strict`."""
        self.last += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params or {}}))
        while True:
            message = json.loads(self.receive())
            if message.get("id") == self.last:
                return message
            assert not strict and "method" in message, f"nobody asked for {message}"

    def call(self, tool: str, arguments: dict, strict: bool = True) -> str:
        result = self.ask("tools/call", {"name": tool, "arguments": arguments}, strict)["result"]
        return ("error: " if result.get("isError") else "") + result["content"][0]["text"]


def keeps_the_rules(peer: Peer) -> None:
    for asked, given in [("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")]:
        hello = peer.ask("initialize", {"protocolVersion": asked, "capabilities": {}})
        assert hello["result"]["protocolVersion"] == given, hello
        peer.notify("notifications/initialized")
    peer.notify("notifications/cancelled", {"requestId": 77})
    peer.notify("no/such/thing")
    assert peer.ask("ping")["result"] == {}
    listing, adding = peer.ask("tools/list")["result"]["tools"]
    assert listing["inputSchema"] == {"type": "object", "properties": {}}, listing
    assert adding["inputSchema"]["properties"]["position"]["items"] == {"type": "number"}, adding
    assert adding["inputSchema"]["required"] == ["name", "position"], adding
    assert peer.call("add_object", {"name": "é", "position": [1, 2.5]}) == "1 objects"
    assert json.loads(peer.call("list_objects", {})) == [{"name": "é", "position": [1, 2.5]}]
    assert peer.call("no_such_tool", {}).startswith("error: ")
    assert peer.ask("no/such/method")["error"]["code"] == -32601


def works_straight(port: int) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    url, right = f"ws://127.0.0.1:{port}", {"Authorization": f"Bearer {TOKEN}"}
    for headers, origin, status in [({}, None, 401), ({"Authorization": "Bearer wrong"}, None, 401), (right, "https://evil.example", 403)]:
        try:
            connect(url, additional_headers=headers, origin=origin).close()
        except InvalidStatus as refused:
            assert refused.response.status_code == status, refused
        else:
            raise AssertionError(f"let in: {headers} {origin}")
    with connect(url, additional_headers=right, subprotocols=["mcp"]) as client:
        assert client.subprotocol == "mcp"
        keeps_the_rules(Peer(client.send, lambda: client.recv(timeout=SECONDS)))
    with connect(url, additional_headers=right) as client:
        assert Peer(client.send, lambda: client.recv(timeout=SECONDS)).ask("ping")["result"] == {}


def works_by_connect(port: int, pontoon: pathlib.Path, directory: pathlib.Path) -> None:
    command = [pontoon, "connect", f"ws://127.0.0.1:{port}", "--token-env", "APP_TOKEN"]
    variables = {"HOME": str(directory), "APP_TOKEN": TOKEN}
    with subprocess.Popen(command, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bridge:
        def send(text: str) -> None:
            bridge.stdin.write(text + "\n")
            bridge.stdin.flush()
        peer = Peer(send, bridge.stdout.readline)
        try:
            peer.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
            peer.notify("notifications/initialized")
            tools = peer.ask("tools/list", strict=False)["result"]["tools"]
            assert [tool["name"] for tool in tools] == ["list_objects", "add_object"], tools
            assert peer.call("add_object", {"name": "b", "position": [0, 0]}, strict=False).endswith(" objects")
            bridge.stdin.close()
            assert bridge.wait(SECONDS) == 0
        finally:
            bridge.kill()


def works_by_serve(port: int, pontoon: pathlib.Path, directory: pathlib.Path) -> None:
    (shipped,) = [json.loads(it) for it in re.findall(r"```json\n(\{.*?)```", DOCUMENT, re.S) if '"shared"' in it]
    text = json.dumps(shipped).replace("/opt/my-app/pontoon", str(pontoon)).replace("127.0.0.1:7400", f"127.0.0.1:{port}")
    (directory / "bridge.json").write_text(text)
    listen = free_port()
    variables = {"PATH": os.environ["PATH"], "HOME": str(directory), "APP_TOKEN": TOKEN, "MCPO_JOBS_DIR": str(directory / "jobs"), "MCPO_STATE_DIR": str(directory / "state")}
    command = [pontoon, "serve", "--config", directory / "bridge.json", "--listen", f"127.0.0.1:{listen}"]
    with subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as bridge:
        try:
            wait_until("the bridge listens", lambda: can_connect(listen))
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_objects", "arguments": {}}})
            headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            request = urllib.request.Request(f"http://127.0.0.1:{listen}/mcp/my-app", body.encode(), headers)
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                text = response.read().decode()
            # One answer as it is, or as the only event.
            answer = json.loads(text[text.index("{"):])
            assert answer["result"]["content"][0]["text"].startswith("[{"), answer
        finally:
            bridge.terminate()
            bridge.wait(SECONDS)


def compiled(directory: pathlib.Path) -> pathlib.Path | None:
    """The sketch in C++ as a program that answers line by line."""
    source, program = directory / "answer.cpp", directory / "answer"
    source.write_text(sketch("cpp", "answer.cpp") + CPP_MAIN)
    if shutil.which("g++") is None or not pathlib.Path("/usr/include/nlohmann/json.hpp").exists():
        print("skipped: C++, for g++ or nlohmann/json (Debian: nlohmann-json3-dev) is not installed")
        return None
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    return program


def in_cpp(program: pathlib.Path) -> None:
    with subprocess.Popen([program], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as app:
        def send(text: str) -> None:
            app.stdin.write(text + "\n")
            app.stdin.flush()
        try:
            keeps_the_rules(Peer(send, app.stdout.readline))
        finally:
            app.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    options = parser.parse_args()
    python = CACHE / "app-python" / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() != (CACHE / "app-python").resolve():
        subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *INSTALLS], check=True)
        os.execv(python, [python, *sys.argv])
    passed = []

    def check(name: str, work, *arguments) -> None:
        try:
            work(*arguments)
        except Exception as error:  # A library's own too.
            print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)
            passed.append(False)
        else:
            print(f"ok   {name}", flush=True)
            passed.append(True)

    with tempfile.TemporaryDirectory(prefix="pontoon-sketch-") as place:
        directory = pathlib.Path(place)
        (directory / "app.py").write_text(sketch("python", "app.py"))
        (directory / "app.mjs").write_text(sketch("js", "app.mjs"))
        (directory / "node_modules").symlink_to((CACHE / "app-node" / "node_modules").resolve())
        node = (CACHE / "node22" / "bin" / "node").resolve(strict=True)
        for name, command in [("Python", [python, "app.py"]), ("JavaScript", [node, "app.mjs"])]:
            with running(command, directory) as port:
                check(f"{name} keeps the rules", works_straight, port)
                check(f"{name} by pontoon connect", works_by_connect, port, options.pontoon, directory)
                check(f"{name} by pontoon serve", works_by_serve, port, options.pontoon, directory)
        program = compiled(directory)
        if program is not None:
            check("C++ keeps the rules", in_cpp, program)
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if passed and all(passed) else 1)


if __name__ == "__main__":
    main()
