#!/usr/bin/env python3
"""Web pages in real Chromium that come to `pontoon connect --listen` as its application.

    tests/interop/listen_page.py --pontoon target/release/pontoon

A page of an origin that the bridge allows and that has the token becomes the application: an MCP client on standard input and
output lists and calls its tools. Every other page is refused: another origin, no token, a wrong one, or a name that suddenly
means this machine. The browser is PONTOON_CHROMIUM, or the `chromium` in PATH. Ends with `N passed, N failed`.
"""

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import tempfile

from browser import CACHE, chromium
from live_page import HERE, INSTALLS, site
from people import REPOSITORY
from sketches import Peer, free_port, wait_until

SECONDS = 240
WORKS = {"opened": True, "protocol": "mcp", "heard": "initialize"}
REFUSED = {"opened": False}


class Lines:
    """A process that is spoken to in lines."""

    def __init__(self, command: list, **options) -> None:
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.wait()

    def send(self, text: str) -> None:
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def receive(self) -> str:
        line = self.process.stdout.readline()
        assert line, f"{self.process.args[0]} has ended"
        return line

    def ask(self, **words) -> dict:
        self.send(json.dumps(words))
        return json.loads(self.receive())


class Bridge(Lines):
    """`pontoon connect --listen`, and its MCP client."""

    def __init__(self, pontoon: pathlib.Path, home: str, port: int, origin: str) -> None:
        words = ["connect", "--listen", str(port), "--allow-origin", origin, "--connect-wait", "60s"]
        super().__init__([pontoon, *words], env={"HOME": home}, stderr=subprocess.PIPE)
        self.peer = Peer(self.send, self.receive)
        self.peer.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
        self.peer.notify("notifications/initialized")

    def log(self, words: str) -> None:
        """Waits until its log says so."""
        while words not in (line := self.process.stderr.readline()):
            assert line, f"the bridge has ended without `{words}`"

    def hear(self, method: str) -> None:
        while json.loads(self.receive()).get("method") != method:
            pass

    def tools(self) -> list[str]:
        return [tool["name"] for tool in self.peer.ask("tools/list", strict=False)["result"]["tools"]]

    def call(self, tool: str, arguments: dict) -> str:
        return self.peer.call(tool, arguments, strict=False)


def check_all(bridge: Bridge, pages: Lines, token: str, url: str, allowed: str, foreign: str) -> list[bool]:
    passed = []

    def check(name: str, got, expected) -> None:
        passed.append(got == expected)
        print(f"ok   {name}" if passed[-1] else f"FAIL {name}: {got}", flush=True)

    def come(page: str, where: str, protocols: list[str]) -> dict:
        return pages.ask(page=page + "/index.html", url=where, protocols=protocols)

    right = ["mcp", f"bearer.{token}"]
    evil = "http://evil.example:" + foreign.rsplit(":", 1)[1]
    check("no tools are there before a page", bridge.tools(), [])
    check("a page of a foreign origin is refused though it has the token", come(foreign, url, right), REFUSED)
    check("a page of an allowed origin without the token is refused", come(allowed, url, ["mcp"]), REFUSED)
    check("a page of an allowed origin with a wrong token is refused", come(allowed, url, ["mcp", "bearer.wrong"]), REFUSED)
    check("a page of a name that means this machine is refused", come(evil, url, right), REFUSED)
    renamed = url.replace("127.0.0.1", "evil.example")
    check("such a name is refused also as the address of the bridge", come(allowed, renamed, right), REFUSED)
    check("a page of an allowed origin with the token is the application", come(allowed, url, right), WORKS)
    bridge.hear("notifications/tools/list_changed")
    check("its tools are listed", bridge.tools(), ["page_title", "set_title"])
    check("a tool is called in the page", bridge.call("page_title", {}), f"A page of {allowed}")
    check("arguments come there", bridge.call("set_title", {"title": "桟橋"}), f"桟橋 of {allowed}")
    check("a tool that fails says why", bridge.call("set_title", {}), "error: Error: no title was given")
    check("a second page is told to come later", come(allowed, url, right), {"opened": True, "code": 1013})
    check("and the first is the application still", bridge.call("page_title", {}), f"桟橋 of {allowed}")
    pages.ask(close=True)
    bridge.log("application gone")
    bridge.peer.last += 1
    bridge.send(json.dumps({"jsonrpc": "2.0", "id": bridge.peer.last, "method": "tools/call",
                            "params": {"name": "page_title", "arguments": {}}}))
    check("a page comes again after all were closed", come(allowed, url, right), WORKS)
    while (answer := json.loads(bridge.receive())).get("id") != bridge.peer.last:
        pass
    check("the call that waited for it is answered", answer["result"]["content"][0]["text"], f"A page of {allowed}")
    bridge.process.stdin.close()
    check("the bridge ends with its input", bridge.process.wait(), 0)
    return passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    options = parser.parse_args()
    subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *INSTALLS], check=True)
    # Whatever does not come is waited for no longer.
    signal.alarm(SECONDS)
    node = (CACHE / "node22" / "bin" / "node").resolve(strict=True)
    command = [node, HERE / "listen_page.mjs", (CACHE / "playwright").resolve(), chromium()]
    with tempfile.TemporaryDirectory(prefix="pontoon-page-") as home:
        allowed, foreign, port = site(home), site(home), free_port()
        with Bridge(options.pontoon, home, port, allowed) as bridge, Lines(command) as pages:
            file = pathlib.Path(home) / ".local/state/pontoon/listen-token"
            wait_until("the bridge has made its token", lambda: file.exists() and file.read_text().strip())
            url = f"ws://127.0.0.1:{port}"
            passed = check_all(bridge, pages, file.read_text().strip(), url, allowed, foreign)
            pages.process.stdin.close()
            pages.process.wait()
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if passed and all(passed) else 1)


if __name__ == "__main__":
    main()
