#!/usr/bin/env python3
"""Chats in Open WebUI whose connections are what `pontoon config open-webui` prints.

    tests/interop/open_webui_chats.py --pontoon target/debug/pontoon --fixture target/debug/fixture-server

Open WebUI's own code (`python/open_webui_chat.py`) reads the connections as it does at its first start, and its backend calls the tools of
three servers in chats of two people: that of 0.12.4 with the SDK 2.3 and by OpenAPI, and that of 0.12.3 with the SDK 1.27, of the versions
before. Tools are listed, an answer of 2 MiB arrives, a tool fails, a call takes too long, a server is busy and a server dies, and the turn
goes on after each; a chat keeps its process over its turns, and no other has it. Who asks is said by the headers that are printed, or signed.
Ends with `N passed, N failed`.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import typing

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "deploy"))

from people import API_KEY, JWT_SECRET, REPOSITORY  # noqa: E402
from replicas import Replica, free_port  # noqa: E402

CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
BIG_BYTES = 2 * 1024 * 1024
TURNS_SECONDS = 150
JAPANESE = "桟橋は水に浮かぶ 🌊"


class OpenWebui(typing.NamedTuple):
    """A version of Open WebUI, with what it is installed as, and its kind of connection."""

    title: str
    source: str
    venv: str
    sdk: str
    kind: str


VERSIONS = [
    OpenWebui("0.12.4 with SDK 2.3", "open-webui", "py-mcp2", "2.3.0", "mcp"),
    OpenWebui("0.12.3 with SDK 1.27", "open-webui-mcp1", "py-mcp1-open-webui", "1.27.2", "mcp"),
    OpenWebui("0.12.4 by OpenAPI", "open-webui", "open-webui-client", "none", "openapi"),
]


class Bridge:
    """The bridge with a server of each mode, and the connections that it prints."""

    def __init__(self, program: pathlib.Path, fixture: pathlib.Path, directory: pathlib.Path, is_signed: bool) -> None:
        self.program, self.is_signed = program, is_signed
        server = {"command": str(fixture)}
        servers = {
            "open": server | {"timeout": "2s", "tool_timeouts": {"big": "60s", "ask": "60s"}, "usage_guide": "Say it in Japanese."},
            "chat": server | {"mode": "stateful"},
            # One call at a time, and no other waits for it.
            "narrow": server | {"mode": "shared", "max_in_flight": 1},
        }
        settings = {"MCPO_JOBS_DIR": str(directory / "jobs"), "MCPO_API_KEY": API_KEY, "MCPO_MAX_CONCURRENT": "64"}
        settings |= {"MCPO_OWUI_JWT_SECRET": JWT_SECRET} if is_signed else {}
        self.replica = Replica(program, directory / "bridge", f"127.0.0.1:{free_port()}", servers, settings)
        self.replica.wait_until_ready()

    def connections(self, kind: str) -> str:
        """What a person pastes, with the key where it says that it belongs."""
        url = f"http://{self.replica.listen}"
        command = [self.program, "config", "open-webui", "--config", self.replica.directory / "servers.json", "--url", url, "--as", kind]
        printed = subprocess.run(command, env=self.replica.environment, check=True, capture_output=True, text=True, timeout=30)
        assert "put the API key (MCPO_API_KEY) in the place of KEY" in printed.stderr, printed.stderr
        assert ("ENABLE_FORWARD_USER_INFO_HEADERS=true" in printed.stderr) == self.is_signed, printed.stderr
        return printed.stdout.replace('"KEY"', json.dumps(API_KEY))

    def chats(self, version: OpenWebui, turns: list[list[dict]]) -> dict:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MCPO_", "ENABLE_", "FORWARD_"))}
        environment = {"PONTOON_TEST_CACHE": str(CACHE), "PYTHONDONTWRITEBYTECODE": "1", "OPEN_WEBUI": version.source}
        environment["TOOL_SERVER_CONNECTIONS"] = self.connections(version.kind)
        if self.is_signed:
            environment |= {"ENABLE_FORWARD_USER_INFO_HEADERS": "true", "FORWARD_USER_INFO_HEADER_JWT_SECRET": JWT_SECRET}
        ended = subprocess.run(
            [CACHE / version.venv / "bin" / "python", HERE / "python" / "open_webui_chat.py"],
            input=json.dumps({"turns": turns}),
            env=inherited | environment,
            capture_output=True,
            text=True,
            timeout=TURNS_SECONDS,
        )
        if ended.returncode != 0:
            sys.exit(f"Open WebUI {version.title} ended with status {ended.returncode}:\n{ended.stderr[-3000:]}")
        return json.loads(ended.stdout)


class Step(typing.NamedTuple):
    """A call and what the model has to read of it: a part of it, by MCP and by OpenAPI, or all of it."""

    tool: str
    arguments: dict
    mcp: str
    openapi: str | None = None
    is_whole: bool = False
    waits: dict = {}


def says(text: str, **waits) -> Step:
    return Step("echo", {"text": text}, text, None, False, waits)


def whole(text: str) -> Step:
    return Step("echo", {"text": text}, text, None, True)


BUSY = "busy: all 1 calls"
IN_OPEN = [
    whole("plain"),
    whole(JAPANESE),
    whole('quotes " and \\ and\nnewlines'),
    Step("big", {"bytes": BIG_BYTES}, "x" * BIG_BYTES, None, True),
    # The tool itself says that it failed, and why.
    Step("big", {"bytes": 2**31}, "`bytes` is more than 1 GiB"),
    Step("write_file", {"name": "a"}, "argument `text` must be a string", "Field required"),
    says("after a tool failed"),
    Step("wait", {"ms": 60_000}, "did not answer within 2 s"),
    says("after a call took too long"),
    Step("crash", {}, "exited with code 3"),
    says("after a server died"),
    Step("ask", {"question": "Which colour?"}, "accept:blue", "does not support elicitation"),
    Step("write_file", {"name": "売上.txt", "text": "1"}, "/files/"),
]


def turn(user: str, chat: str, server: str, steps: list[Step], kind: str) -> dict:
    name = (lambda tool: f"tool_{tool}_post") if kind == "openapi" else lambda tool: f"{server}_{tool}"
    calls = [{"tool": name(step.tool), "arguments": step.arguments} | step.waits for step in steps]
    return {"user": user, "chat": chat, "server": server, "calls": calls}


def talks(version: OpenWebui) -> list[tuple[str, list[tuple[str, str, str, list[Step]]]]]:
    """What is talked about, in turns of the same moment: who, in which chat, with which server, and the calls."""

    def counted(count: int) -> list[Step]:
        return [Step("tally", {}, str(count), None, True)]

    # Chats of one version are none of another's.
    first, second = f"first-{version.venv}", f"second-{version.venv}"
    refused = Step("echo", {"text": "hello"}, BUSY, None, False, {"until": BUSY})
    busy = [says("listens", then="listening"), refused, says("hello again", after="over")]
    # The others' calls may be in its way as well.
    waits = {"after": "listening", "until": "waited 4000 ms", "then": "over"}
    long = [Step("wait", {"ms": 4000}, "waited 4000 ms", None, False, waits)]
    return [
        ("what comes of calls", [("ada", first, "open", IN_OPEN)]),
        ("a chat begins", [("ada", first, "chat", counted(1))]),
        ("it goes on in its next turn", [("ada", first, "chat", counted(2) + counted(3))]),
        ("another chat begins anew", [("ada", second, "chat", counted(1)), ("ben", first, "chat", counted(1))]),
        ("and the first still goes on", [("ada", first, "chat", counted(4))]),
        ("a server is busy with somebody else's call", [("ada", first, "narrow", busy), ("ben", second, "narrow", long)]),
    ]


def wrong_with(told: dict, steps: list[Step], kind: str) -> list[str]:
    if "error" in told:
        return [told["error"]]
    found = []
    for step, text in zip(steps, told["texts"], strict=True):
        expected = step.openapi if kind == "openapi" and step.openapi is not None else step.mcp
        if not (text == expected if step.is_whole else expected in str(text)):
            shown = str(text)
            found.append(f"{step.tool} said {shown[:300]!r} of {len(shown)} letters, and not {expected[:100]!r}")
    return found


class Report:
    def __init__(self) -> None:
        self.passed = self.failed = 0

    def check(self, what: str, complaints: list[str]) -> None:
        for complaint in complaints:
            print(f"FAIL {what}: {complaint[:600]}", flush=True)
        if not complaints:
            print(f"ok   {what}", flush=True)
        self.passed += not complaints
        self.failed += len(complaints)


def look(bridge: Bridge, version: OpenWebui, report: Report) -> None:
    title = f"{version.title}, {'signed' if bridge.is_signed else 'by headers'}"
    asked = talks(version)
    told = bridge.chats(version, [[turn(*who, version.kind) for who in together] for _, together in asked])
    kinds = {(it["type"], it["info"]["id"]) for it in told["connections"]}
    expected = {(version.kind, server) for server in ["open", "chat", "narrow"]}
    complaints = [] if kinds == expected else [f"it has {sorted(kinds)}, not {sorted(expected)}"]
    complaints += [] if told["sdk"] == version.sdk else [f"its SDK is {told['sdk']}, not {version.sdk}"]
    report.check(f"{title}: reads its connections", complaints)
    first = told["turns"][0][0]
    name = "tool_echo_post" if version.kind == "openapi" else "open_echo"
    complaints = [] if name in first.get("tools", []) else [f"{name} is not among its tools"]
    if version.kind == "mcp" and "Say it in Japanese." not in (first.get("told") or ""):
        complaints.append(f"the model is told {first.get('told')!r}")
    report.check(f"{title}: {len(first.get('tools', []))} tools", complaints)
    for (what, together), answers in zip(asked, told["turns"], strict=True):
        wrong = [it for (*_, steps), answer in zip(together, answers, strict=True) for it in wrong_with(answer, steps, version.kind)]
        report.check(f"{title}: {what}", wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--fixture", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True), help="fixture-server")
    options = parser.parse_args()
    installs = sorted({name for version in VERSIONS for name in (version.source, version.venv)})
    subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *installs], check=True)
    report = Report()
    for is_signed in [False, True]:
        with tempfile.TemporaryDirectory(prefix="pontoon-owui-chats-") as directory:
            bridge = Bridge(options.pontoon, options.fixture, pathlib.Path(directory), is_signed)
            failed = report.failed
            try:
                for version in VERSIONS:
                    look(bridge, version, report)
            finally:
                report.check("the bridge ends", bridge.replica.stop())
            if report.failed > failed:
                print("last lines of the bridge's log:", *bridge.replica.log[-20:], sep="\n    ")
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
