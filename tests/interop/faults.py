#!/usr/bin/env python3
"""Errors that `pontoon doctor` finds beside the schemas (codes D and H), reproduced in the clients that they name.

    tests/interop/faults.py --pontoon target/debug/pontoon --rude target/debug/rude-server

Each client uses a server with one of the faults, first straight: at least one of those that the code names cannot call its tool. Then it
uses all of them through `pontoon serve`, where those that are healed work. Last the doctor is asked: it tells the code as an error.
Every D and H that docs/codes.md calls an error has a case here, or a reason. Ends with `N passed, N failed`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import typing

import schemas

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")

# What a client that a server keeps waiting has to say by then counts as lost. What has to work has its time.
SECONDS = 15
PATIENCE_SECONDS = 90
CALLS = [{"text": "hello"}]
AT_ONCE = [{"text": f"hello {n}"} for n in range(4)]
CODES = REPOSITORY / "docs" / "codes.md"

CLIENTS = {
    "TypeScript SDK 1": [CACHE / "node22" / "bin" / "node", HERE / "node" / "schemas.mjs", "v1"],
    "TypeScript SDK 2": [CACHE / "node22" / "bin" / "node", HERE / "node" / "schemas.mjs", "v2"],
    "Python SDK 1": [CACHE / "py-mcp1" / "bin" / "python", HERE / "python" / "schemas_client.py"],
    "Python SDK 2": [CACHE / "py-mcp2" / "bin" / "python", HERE / "python" / "schemas_client.py"],
}
INSTALLS = ["node22", "ts-v1", "ts-v2", "py-mcp1", "py-mcp2", "claude"]
CLAUDE = "Claude Code"
CLAUDE_VERSION = "2.1.325"
# By itself it waits 30 s for a start.
CLAUDE_WAITS = {"MCP_TIMEOUT": "5000", "MCP_TOOL_TIMEOUT": "10000"}
ALL = {*CLIENTS, CLAUDE}
# Claude Code has the first of them inside.
TYPESCRIPT = {"TypeScript SDK 1", "TypeScript SDK 2", CLAUDE}
PYTHON = {"Python SDK 1", "Python SDK 2"}


class Case(typing.NamedTuple):
    """A fault, the words that make `rude-server` have it, the clients that fail, and whether it is healed."""

    code: str
    how: str
    fails: set[str]
    is_healed: bool = True
    # What `echo` is called with, all at once.
    calls: list[dict] = CALLS
    # How long clients that can be told so wait for the handshake.
    start_seconds: int = 60
    doctor_says: str = "error"
    # What `echo` says where that is not what it was called with. Claude Code shows structured content in place of a text.
    said: tuple[str, ...] = ()


CASES = [
    # Claude Code waits for 30 s, the TypeScript SDKs for 60 s if they are told nothing. That the doctor calls it an error then is for a
    # test of its own; so short a start is a warning.
    Case("D01", "slow-start --ms 8000", TYPESCRIPT, start_seconds=2, doctor_says="warning"),
    Case("H02", "pretty", ALL),
    Case("H03", "joined", ALL),
    Case("H05", "content-length", ALL),
    Case("H06", "not-utf8", PYTHON),
    Case("H09", "float-id", PYTHON),
    Case("H11", "null-id-error", ALL, is_healed=False),
    Case("H13", "no-jsonrpc", ALL),
    Case("H14", "error-string", ALL, is_healed=False),
    Case("H16", "nulls", ALL),
    Case("H17", "raw-result", ALL),
    # What stands in its text is given as structured content, in which the size is a number by the tool's schema.
    Case("H18", "unfit-structured", ALL, calls=[{"text": '{"text": "hello", "size": "5"}'}], said=("done", '{"text":"hello","size":5}')),
    Case("H30", "extra-member", TYPESCRIPT),
    Case("D02", "die-mid-line", ALL, is_healed=False),
    Case("D03", "hang", ALL, is_healed=False),
    # Each call of a stateless server has a process for itself. Claude Code makes one call here, which goes well.
    Case("D07", "mixes-calls --how may-repeat", ALL - {CLAUDE}, calls=AT_ONCE),
    Case("D09", "no-capabilities", {"TypeScript SDK 2", CLAUDE}),
    Case("D12", "no-version", ALL, is_healed=False),
    Case("D13", "list-fails", ALL, is_healed=False),
]

# Errors without a case.
REASONS = {"H23": "it is what Pontoon does about D09, as which an examination tells it"}


def name_of(case: Case) -> str:
    return f"{case.code.lower()}-{case.how.split()[0]}"


def told_by(command: list, servers: dict[str, dict], seconds: int) -> dict[str, dict]:
    asked = {name: {"calls": {"echo": CALLS}} | server | {"seconds": seconds} for name, server in servers.items()}
    environment = os.environ | {"PONTOON_TEST_CACHE": str(CACHE), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, env=environment, timeout=300)
    if ended.returncode != 0:
        sys.exit(f"{command[1]} ended with status {ended.returncode}:\n{ended.stderr[-2000:]}")
    # Before it an SDK may have written what it minds.
    return json.loads(ended.stdout.splitlines()[-1])


def told_by_claude(servers: dict[str, dict], variables: dict[str, str]) -> dict[str, dict]:
    """The same of Claude Code, which makes the first of the calls."""
    settings = {
        name: {"type": "http", "url": server["url"]}
        if "url" in server
        else {"type": "stdio", "command": server["command"][0], "args": server["command"][1:]}
        for name, server in servers.items()
    }
    asked = {name: schemas.Server("", [], {"echo": server["calls"]["echo"][0]}) for name, server in servers.items()}
    told = schemas.Claude(CLAUDE_VERSION, **variables).look_at(settings, asked)
    return {name: it | {"calls": {tool: [call] for tool, call in it["calls"].items()}} for name, it in told.items()}


def failure(told: dict, calls: list[dict], said: tuple[str, ...] = ()) -> str | None:
    """Why a client could not call the tool."""
    if "error" in told:
        return told["error"]
    for asked, call in zip(calls, told["calls"].get("echo") or [{"error": "there is no tool"}]):
        if "error" in call:
            return call["error"]
        wanted = said or (asked["text"],)
        if not call["text"].endswith(wanted):
            return f"it heard {call['text']!r} in place of {wanted!r}"
    return None


def without_case() -> set[str]:
    """The codes that docs/codes.md calls errors, and that have neither a case nor a reason."""
    told = re.findall(r"^`([DH]\d\d)` \(([^)]*)\)", CODES.read_text(), re.MULTILINE)
    errors = {code for code, severity in told if "error" in severity}
    assert len(errors) > 10, "docs/codes.md has another form"
    return errors ^ ({case.code for case in CASES} | REASONS.keys())


@contextlib.contextmanager
def bridge(program: pathlib.Path, servers: dict[str, dict]):
    """Where each server is, behind `pontoon serve`."""
    with tempfile.TemporaryDirectory(prefix="pontoon-faults-") as place:
        config = pathlib.Path(place) / "servers.json"
        entries = {name: {"command": server["command"][0], "args": server["command"][1:]} for name, server in servers.items()}
        config.write_text(json.dumps({"mcpServers": entries}))
        state = {"MCPO_STATE_DIR": f"{place}/state", "MCPO_JOBS_DIR": f"{place}/jobs", "MCPO_MAX_CONCURRENT": "64"}
        command = [program, "serve", "--config", config, "--listen", "127.0.0.1:0"]
        options = {"cwd": place, "env": os.environ | state, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, text=True, stderr=subprocess.STDOUT, **options) as process:
            try:
                address = next(found[0] for line in process.stdout if (found := re.search(r"http://127\.0\.0\.1:[1-9]\d*", line)))
                threading.Thread(target=process.stdout.read, daemon=True).start()
                yield {name: {"url": f"{address}/mcp/{name}", "calls": server["calls"]} for name, server in servers.items()}
            finally:
                process.terminate()


def found_by_doctor(program: pathlib.Path, case: Case, server: dict) -> dict[str, str]:
    """The codes that the doctor finds, and how bad they are."""
    calls = [word for arguments in case.calls for word in ("--call", f"echo={json.dumps(arguments)}")]
    patience = "20s" if case.code == "D01" else "3s"
    command = [program, "doctor", "--json", "--timeout", patience, "--probe-size", "0", *calls, "--", *server["command"]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    report = json.loads(ended.stdout)["servers"][0]
    found = {it["code"]: it["severity"] for it in report["findings"]}
    return found or {"unexamined": str(report["unexamined"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["--pontoon", "--rude"]:
        parser.add_argument(name, required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    options = parser.parse_args()
    subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *INSTALLS], check=True)
    servers = {
        name_of(case): {
            "command": [str(options.rude), "--how", *case.how.split()],
            "calls": {"echo": case.calls},
            "start_seconds": case.start_seconds,
        }
        for case in CASES
    }
    servers["healthy"] = {"command": [str(options.rude)], "calls": {"echo": AT_ONCE}}
    passed, failures = 0, []

    def check(what: str, is_well: bool, said: object) -> None:
        nonlocal passed
        passed += is_well
        if not is_well:
            failures.append(what)
        print(f"{'ok  ' if is_well else 'FAIL'} {what}{'' if is_well else f': {said}'}", flush=True)

    check("every code that can be an error has a case or a reason", not without_case(), sorted(without_case()))
    healed = {name_of(case) for case in CASES if case.is_healed} | {"healthy"}
    with bridge(options.pontoon, {name: server for name, server in servers.items() if name in healed}) as addresses:
        for client in [*CLIENTS, CLAUDE]:
            if client == CLAUDE:
                straight, through = told_by_claude(servers, CLAUDE_WAITS), told_by_claude(addresses, {})
            else:
                straight = told_by(CLIENTS[client], servers, SECONDS)
                through = told_by(CLIENTS[client], addresses, PATIENCE_SECONDS)
            check(f"{client}: a healthy server", failure(straight["healthy"], AT_ONCE) is None, straight["healthy"])
            for case in CASES:
                name, why = name_of(case), failure(straight[name_of(case)], case.calls, case.said)
                loses = "loses it" if client in case.fails else "uses it"
                check(f"{client}: {name}: {loses}", (why is not None) == (client in case.fails), why or "it works")
                if case.is_healed:
                    why = failure(through[name], case.calls, case.said)
                    check(f"{client}: {name} through the bridge", why is None, why)
    for case in CASES:
        found = found_by_doctor(options.pontoon, case, servers[name_of(case)])
        check(f"doctor: {name_of(case)}", found.get(case.code) == case.doctor_says, found)
    print(f"{passed} passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
