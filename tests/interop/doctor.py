#!/usr/bin/env python3
"""Runs `pontoon doctor --json` over real servers from the registries, each pinned.

    tests/interop/doctor.py --pontoon target/swift/pontoon [--keep FOLDER] [--write]

It installs what is missing (`scripts/setup-tests.sh`), examines every server, and fails if one cannot be examined, takes too
long, leaves a process or a folder, or is blamed with an error or a warning that is not known to be its own. What was found has to be what the table
and the sample in docs/doctor.md say, which `--write` writes anew. With `--keep` the reports for people are written into a folder.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")

PAGE = REPOSITORY / "docs" / "doctor.md"
BEGIN, END = "<!-- Written by tests/interop/doctor.py --write -->\n", "<!-- to here -->\n"

# These go by the machine: how quick it is, and what is installed for the tool that is called.
BY_MACHINE = {"D01", "D14", "H27"}

# Two at once: most of the time is the start of Node and Python.
AT_ONCE = 2
SECONDS = 90


@dataclass
class Real:
    """A server: its command, what it needs, and the faults that it is known to have."""

    name: str
    package: str
    command: list
    installs: list[str]
    tools: int
    # Errors that a client was seen to have with it, and warnings that were looked at; any other is a wrong finding.
    errors: set[str] = field(default_factory=set)
    warnings: set[str] = field(default_factory=set)


def python(venv: str, program: str, *arguments: str) -> list:
    return [CACHE / venv / "bin" / program, *arguments]


def node(install: str, package: str, *arguments: str) -> list:
    return [CACHE / "node22" / "bin" / "node", CACHE / install / "node_modules" / package, *arguments]


MCP = "@modelcontextprotocol"

# Warnings that are true of several: what each means and who minds is in docs/codes.md.
OLD_DRAFT, LONG, NULL_DEFAULT = "S010/old-dialect-output", "S024/long-description", "S021/default"

SERVERS = [
    Real("time", "mcp-server-time", python("py-time", "mcp-server-time"), ["py-time"], 2),
    Real("fetch", "mcp-server-fetch", python("doctor-python", "mcp-server-fetch"), ["doctor-python"], 1),
    Real("git", "mcp-server-git", python("doctor-python", "mcp-server-git"), ["doctor-python"], 10),
    Real("excel", "excel-mcp-server", python("office-excel", "excel-mcp-server", "stdio"), ["office-excel"], 20),
    Real("powerpoint", "office-powerpoint-mcp-server", python("office-powerpoint", "ppt_mcp_server"), ["office-powerpoint"], 30, warnings={NULL_DEFAULT, LONG}),
    Real("everything", f"{MCP}/server-everything", node("everything", f"{MCP}/server-everything/dist/index.js"), ["everything"], 10, warnings={OLD_DRAFT}),
    Real("filesystem", f"{MCP}/server-filesystem", node("filesystem", f"{MCP}/server-filesystem/dist/index.js", "."), ["filesystem"], 10, warnings={OLD_DRAFT}),
    Real("memory", f"{MCP}/server-memory", node("doctor-node", f"{MCP}/server-memory/dist/index.js"), ["doctor-node"], 9, warnings={OLD_DRAFT}),
    Real("thinking", f"{MCP}/server-sequential-thinking", node("doctor-node", f"{MCP}/server-sequential-thinking/dist/index.js"), ["doctor-node"], 1, warnings={OLD_DRAFT, LONG}),
    Real("github", f"{MCP}/server-github", node("doctor-node", f"{MCP}/server-github/dist/index.js"), ["doctor-node"], 20),
    Real("context7", "@upstash/context7-mcp", node("doctor-node", "@upstash/context7-mcp/dist/index.js"), ["doctor-node"], 2, warnings={LONG}),
    Real("playwright", "@playwright/mcp", node("playwright", "@playwright/mcp/cli.js"), ["playwright"], 20),
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


def version(server: Real) -> str:
    """The version that is pinned."""
    place = HERE / "installs" / server.installs[0]
    if (place / "package.json").exists():
        return json.loads((place / "package.json").read_text())["dependencies"][server.package]
    return re.search(rf"^{re.escape(server.package)}==(\S+)$", (place / "requirements.txt").read_text(), re.MULTILINE)[1]


def codes(report: dict, severity: str) -> set[str]:
    return {it["code"] for it in report["findings"] if it["severity"] == severity}


def row(server: Real, report: dict) -> str:
    """What was found of a server, as the table in docs/doctor.md has it."""
    found = sorted({(it["code"], it["severity"]) for it in report["findings"] if it["code"] not in BY_MACHINE})
    worse = [f"{code} ({severity})" for code, severity in found if severity != "information"]
    known = [code for code, severity in found if severity == "information"]
    fewer = [f"{it['title']} {it['visible']}" for it in report["clients"] if it["visible"] < report["tools"]]
    mode = (report["recommendation"] or {"entry": {}})["entry"].get("mode", "stateless")
    cells = [f"{server.package} {version(server)}", str(report["tools"]), *(", ".join(it) or "none" for it in (worse, known, fewer)), mode]
    return f"| {' | '.join(cells)} |"


def table(rows: list[str]) -> str:
    head = ["server", "tools", "to mend", "good to know", "fewer tools in", "mode"]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows]) + "\n"


# The sample in docs/doctor.md, but for what is recommended: that goes by times, too.
SAMPLE = re.compile(r"(?<=\nnpx @modelcontextprotocol/server-sequential-thinking\n)\nStart\n.*?(?=\nFor mcp-servers.json\n)", re.DOTALL)


def sample(pontoon: str, folder: pathlib.Path) -> str:
    """The report for people of the server whose report is in docs/doctor.md."""
    command = next(it.command for it in SERVERS if it.name == "thinking")
    text, _ = begin(Real("sample", "", command, [], 0), pontoon, folder, []).communicate(timeout=SECONDS)
    return re.search(r"\nStart\n.*?(?=\nFor mcp-servers.json\n)", text, re.DOTALL)[0]


def without_times(text: str) -> str:
    return re.sub(r"\d+ ms|\d+\.\d s", "N ms", text)


def judge(server: Real, process: subprocess.Popen, folder: pathlib.Path, rows: dict[str, str]) -> list[str]:
    """What is wrong with an examination; its row goes to the others."""
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
    rows[server.name] = row(server, report)
    if report["unexamined"]:
        wrong.append(f"not examined: {report['unexamined']}")
    if report["tools"] < server.tools:
        wrong.append(f"{report['tools']} tools, where {server.tools} were expected")
    errors, warnings = (codes(report, severity) - BY_MACHINE for severity in ("error", "warning"))
    if wrong_findings := (errors - server.errors) | (warnings - server.warnings):
        blamed = [it for it in report["findings"] if it["code"] in wrong_findings]
        wrong.append(f"blamed with {json.dumps(blamed, indent=1)[:1500]}")
    if missed := (server.errors - errors) | (server.warnings - warnings):
        wrong.append(f"not told of {', '.join(sorted(missed))}, which it has")
    expected = 3 if report["unexamined"] else 1 if codes(report, "error") else 0
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


def compare_page(found: str, report: str, is_written: bool) -> list[str]:
    """What is stale in docs/doctor.md, or it is written anew."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    kept, after = rest.split(END)
    shown = SAMPLE.search(page)[0]
    if is_written:
        before = before if without_times(shown) == without_times(report) else before.replace(shown, report)
        PAGE.write_text(before + BEGIN + found + END + after)
        return []
    pairs = {"table": (found, kept), "sample": (without_times(report), without_times(shown))}
    differ = {name: sorted(set(new.splitlines()) - set(old.splitlines())) for name, (new, old) in pairs.items() if new != old}
    told = "docs/doctor.md: the {} is stale (--write, and read the difference):\n{}"
    return [told.format(name, "\n".join(lines)) for name, lines in differ.items()]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pontoon", required=True, type=os.path.abspath)
    parser.add_argument("--only")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    servers = [it for it in SERVERS if not arguments.only or arguments.only in it.name]
    installs = sorted({name for server in servers for name in server.installs} | {"node22"})
    subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *installs], check=True, stdout=subprocess.DEVNULL)
    began, faults, rows = time.monotonic(), [], {}
    with tempfile.TemporaryDirectory(prefix="pontoon-doctor-test-") as place:
        folder = pathlib.Path(place)
        waiting, running = list(servers), []
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                server = waiting.pop(0)
                running.append((server, begin(server, arguments.pontoon, folder, ["--json"])))
            server, process = running.pop(0)
            faults += [f"{server.name}: {fault}" for fault in judge(server, process, folder, rows)]
        if len(rows) == len(SERVERS):
            report = sample(arguments.pontoon, folder)
            faults += compare_page(table([rows[server.name] for server in SERVERS]), report, arguments.write)
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            for server in servers:
                (folder / f"people-{server.name}").mkdir()
                people = Real(f"people-{server.name}/t", "", server.command, [], 0)
                text, _ = begin(people, arguments.pontoon, folder, []).communicate(timeout=SECONDS)
                (arguments.keep / f"{server.name}.txt").write_text(text)
    print(f"{len(servers)} real servers in {time.monotonic() - began:.0f} s")
    for fault in faults:
        print(f"FAILED {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
