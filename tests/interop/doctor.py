#!/usr/bin/env python3
"""Runs `pontoon doctor --json` over real servers from the registries, each pinned.

    tests/interop/doctor.py --pontoon target/swift/pontoon [--keep FOLDER]

It installs what is missing (`scripts/setup-tests.sh`), examines every server, and fails if one cannot be examined, takes too
long, leaves a process or a folder, or is blamed with an error that is not known to be its own. With `--keep` the reports for
people are written into a folder.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")

# Two at once: most of the time is the start of Node and Python.
AT_ONCE = 2
SECONDS = 90


@dataclass
class Real:
    """A server: its command, what it needs, and the faults that it is known to have."""

    name: str
    command: list
    installs: list[str]
    tools: int
    # Errors that a client was seen to have with it; any other is a wrong finding.
    errors: set[str] = field(default_factory=set)


def python(venv: str, program: str, *arguments: str) -> list:
    return [CACHE / venv / "bin" / program, *arguments]


def node(install: str, package: str, *arguments: str) -> list:
    return [CACHE / "node22" / "bin" / "node", CACHE / install / "node_modules" / package, *arguments]


MCP = "@modelcontextprotocol"

SERVERS = [
    Real("time", python("py-time", "mcp-server-time"), ["py-time"], 2),
    Real("fetch", python("doctor-python", "mcp-server-fetch"), ["doctor-python"], 1),
    Real("git", python("doctor-python", "mcp-server-git"), ["doctor-python"], 10),
    Real("excel", python("office-excel", "excel-mcp-server", "stdio"), ["office-excel"], 20),
    Real("powerpoint", python("office-powerpoint", "ppt_mcp_server"), ["office-powerpoint"], 30),
    Real("everything", node("everything", f"{MCP}/server-everything/dist/index.js"), ["everything"], 10),
    Real("filesystem", node("filesystem", f"{MCP}/server-filesystem/dist/index.js", "."), ["filesystem"], 10),
    Real("memory", node("doctor-node", f"{MCP}/server-memory/dist/index.js"), ["doctor-node"], 9),
    Real("thinking", node("doctor-node", f"{MCP}/server-sequential-thinking/dist/index.js"), ["doctor-node"], 1),
    Real("github", node("doctor-node", f"{MCP}/server-github/dist/index.js"), ["doctor-node"], 20),
    Real("context7", node("doctor-node", "@upstash/context7-mcp/dist/index.js"), ["doctor-node"], 2),
    Real("playwright", node("playwright", "@playwright/mcp/cli.js"), ["playwright"], 20),
]


def tagged(tag: str) -> list[int]:
    """The processes whose environment has this tag."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"DOCTOR_TAG={tag}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def begin(server: Real, pontoon: str, folder: pathlib.Path, form: list[str]) -> subprocess.Popen:
    temporary = folder / server.name
    temporary.mkdir()
    environment = dict(os.environ, TMPDIR=str(temporary), DOCTOR_TAG=str(temporary), HOME=str(folder))
    return subprocess.Popen(
        [pontoon, "doctor", *form, "--", *map(str, server.command)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def judge(server: Real, process: subprocess.Popen, folder: pathlib.Path) -> list[str]:
    """What is wrong with an examination."""
    try:
        said, complaints = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return [f"it had not ended after {SECONDS} s"]
    try:
        report = json.loads(said)["servers"][0]
    except (ValueError, LookupError):
        return [f"no report: {said[:300]}{complaints[:300]}"]
    wrong = []
    if report["unexamined"]:
        wrong.append(f"not examined: {report['unexamined']}")
    if report["tools"] < server.tools:
        wrong.append(f"{report['tools']} tools, where {server.tools} were expected")
    errors = {it["code"] for it in report["findings"] if it["severity"] == "error"}
    if errors - server.errors:
        blamed = [it for it in report["findings"] if it["code"] in errors - server.errors]
        wrong.append(f"blamed with {json.dumps(blamed, indent=1)[:1500]}")
    expected = 3 if report["unexamined"] else 1 if errors else 0
    if process.returncode != expected:
        wrong.append(f"exit code {process.returncode}, not {expected}")
    temporary = folder / server.name
    deadline = time.monotonic() + 5
    while tagged(str(temporary)) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left := tagged(str(temporary)):
        wrong.append(f"processes left: {left}")
    # Node keeps a cache there, which is its own.
    if left := [it.name for it in temporary.iterdir() if it.name.startswith("pontoon")]:
        wrong.append(f"folders left: {left}")
    counts = {level: sum(it["severity"] == level for it in report["findings"]) for level in ("error", "warning")}
    shown = [f"{it['title']} {it['visible']}" for it in report["clients"] if it["visible"] < report["tools"]]
    start, end = report["start_ms"], report["end_ms"]
    print(
        f"{server.name:11} {report['tools']:3} tools, starts in {start} ms, ends in {end} ms, "
        f"{counts['error']} errors, {counts['warning']} warnings; fewer in: {', '.join(shown) or 'none'}"
    )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pontoon", required=True, type=os.path.abspath)
    parser.add_argument("--only")
    parser.add_argument("--keep", type=pathlib.Path)
    arguments = parser.parse_args()
    servers = [it for it in SERVERS if not arguments.only or arguments.only in it.name]
    installs = sorted({name for server in servers for name in server.installs} | {"node22"})
    subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *installs], check=True, stdout=subprocess.DEVNULL)
    began, faults = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="pontoon-doctor-test-") as place:
        folder = pathlib.Path(place)
        waiting, running = list(servers), []
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                server = waiting.pop(0)
                running.append((server, begin(server, arguments.pontoon, folder, ["--json"])))
            server, process = running.pop(0)
            faults += [f"{server.name}: {fault}" for fault in judge(server, process, folder)]
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            for server in servers:
                (folder / f"people-{server.name}").mkdir()
                people = Real(f"people-{server.name}/t", server.command, [], 0)
                text, _ = begin(people, arguments.pontoon, folder, []).communicate(timeout=SECONDS)
                (arguments.keep / f"{server.name}.txt").write_text(text)
    print(f"{len(servers)} real servers in {time.monotonic() - began:.0f} s")
    for fault in faults:
        print(f"FAILED {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
