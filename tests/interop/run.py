#!/usr/bin/env python3
"""Runs the clients of other SDKs against a bridge, in both eras and both modes.

    tests/interop/run.py --pontoon target/debug/pontoon --fixture target/debug/fixture-server

It installs what is missing (`scripts/setup-tests.sh`), starts the bridge with the fixture and two
servers from the wild, each stateless and stateful, runs every client, stops the bridge, and looks
for processes left behind. What a client checks is in `python/checks.py`. `--only` takes a part of
client/era/mode as the table prints them: `py-mcp2`, `/legacy/`, `node-v2/modern/stateful`.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import typing
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
RMCP_TARGET = CACHE / "rmcp-target"

START_SECONDS = 20
CLIENT_SECONDS = 300
STOP_SECONDS = 30

MODES = ["stateless", "stateful"]


@dataclass
class Client:
    """One program, the eras it can open in, what must be installed for it, and whom it calls."""

    name: str
    command: list
    eras: list[str]
    installs: list[str]
    server: str = "fixture"
    arguments: tuple = ()
    # Under which path the bridge serves its transport.
    path: str = "mcp"
    modes: tuple = ("stateless", "stateful")


def python(venv: str, script: str) -> list:
    return [CACHE / venv / "bin" / "python", HERE / "python" / script]


def node(script: str) -> list:
    return [CACHE / "node22" / "bin" / "node", HERE / "node" / script]


CLIENTS = [
    Client("py-mcp2", python("py-mcp2", "mcp2.py"), ["modern", "pinned", "legacy"], ["py-mcp2"]),
    Client("py-fastmcp", python("py-mcp2", "fastmcp_client.py"), ["modern", "pinned", "legacy"], ["py-mcp2"]),
    Client("py-mcp1", python("py-mcp1", "mcp1.py"), ["legacy"], ["py-mcp1"]),
    Client("py-mcp1-sse", python("py-mcp1", "mcp1_sse.py"), ["legacy"], ["py-mcp1"], path="sse"),
    Client("py-mcp1-ws", python("py-mcp1", "mcp1_ws.py"), ["legacy"], ["py-mcp1"], path="ws"),
    Client("node-v1", node("v1.mjs"), ["legacy"], ["ts-v1", "node22"]),
    Client("node-v1-ws", node("v1_ws.mjs"), ["legacy"], ["ts-v1", "node22"], path="ws"),
    Client("node-v2", node("v2.mjs"), ["legacy", "modern", "pinned"], ["ts-v2", "node22"]),
    Client("rmcp", [RMCP_TARGET / "debug" / "interop-rmcp"], ["legacy", "modern"], []),
    Client(
        "real-time",
        python("py-mcp2", "real_server.py"),
        ["modern", "legacy"],
        ["py-mcp2", "py-time"],
        "time",
        ("--tool", "get_current_time", "--arguments", '{"timezone": "UTC"}', "--contains", "UTC"),
    ),
    Client(
        "real-everything",
        python("py-mcp2", "real_server.py"),
        ["modern", "legacy"],
        ["py-mcp2", "everything", "node22"],
        "everything",
        ("--tool", "echo", "--arguments", '{"message": "桟橋"}', "--contains", "桟橋"),
    ),
    # Each has a server of its own: clients of one address that can answer the same share a process.
    *(
        Client(
            f"roots-{name}",
            command,
            eras,
            [install, "filesystem", "node22"],
            f"filesystem-{name}",
            arguments,
            modes=("stateful",),
        )
        for name, install, command, eras, arguments in [
            ("py-mcp1", "py-mcp1", python("py-mcp1", "roots.py"), ["legacy"], ()),
            ("py-mcp2", "py-mcp2", python("py-mcp2", "roots.py"), ["legacy", "modern"], ()),
            ("node-v1", "ts-v1", node("roots.mjs"), ["legacy"], ("--sdk", "v1")),
            ("node-v2", "ts-v2", node("roots.mjs"), ["legacy", "modern"], ("--sdk", "v2")),
        ]
    ),
]


@dataclass
class Run:
    """One client in one era against one mode."""

    client: Client
    era: str
    mode: str

    def __str__(self) -> str:
        return f"{self.client.name}/{self.era}/{self.mode}"


@dataclass
class Outcome:
    passed: int
    failed: int
    # What a reader needs to see of a failure.
    lines: list[str]


def main() -> None:
    options = parse_options()
    runs = [
        run
        for client in CLIENTS
        for era in client.eras
        for mode in client.modes
        if options.only in str(run := Run(client, era, mode))
    ]
    if not runs:
        sys.exit(f"--only {options.only} leaves no run")
    set_up(runs)

    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="pontoon-interop-") as directory:
        bridge = Bridge(options.pontoon, options.fixture, pathlib.Path(directory))
        try:
            bridge.start({run.client.server for run in runs})
            print(f"{'client':<16}{'era':<10}{'mode':<12}{'passed':>6}{'failed':>8}{'seconds':>9}", flush=True)
            for run in runs:
                start = time.monotonic()
                outcome = run_client(run, bridge.url(run), options.verbose)
                passed += outcome.passed
                failed += outcome.failed
                print(
                    f"{run.client.name:<16}{run.era:<10}{run.mode:<12}{outcome.passed:>6}{outcome.failed:>8}"
                    f"{time.monotonic() - start:>9.1f}",
                    flush=True,
                )
                for line in outcome.lines:
                    print(f"    {line}", flush=True)
            print(f"{len(bridge.children())} children before SIGTERM")
        finally:
            complaints = bridge.stop()
        for complaint in complaints or ["ok   the bridge ended by SIGTERM and left no process"]:
            print(complaint)
        passed += not complaints
        failed += len(complaints)
        if failed:
            print("last lines of the bridge's log:")
            print("".join(f"    {line}\n" for line in bridge.log[-20:]), end="")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=pathlib.Path, help="the binary of the bridge")
    parser.add_argument("--fixture", required=True, type=pathlib.Path, help="the binary fixture-server")
    parser.add_argument("--only", default="", help="a part of client/era/mode")
    parser.add_argument("--verbose", action="store_true", help="print the checks that pass, too")
    return parser.parse_args()


def set_up(runs: list[Run]) -> None:
    """Installs and builds what these runs need; quick when nothing changed."""
    installs = sorted({install for run in runs for install in run.client.installs})
    if installs:
        subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *installs], check=True)
    if any(run.client.name == "rmcp" for run in runs):
        environment = os.environ | {"CARGO_TARGET_DIR": str(RMCP_TARGET)}
        command = ["cargo", "build", "--quiet", "--locked"]
        subprocess.run(command, cwd=HERE / "rmcp", env=environment, check=True)


def run_client(run: Run, url: str, verbose: bool) -> Outcome:
    command = [*run.client.command, url, "--era", run.era, "--server-note", run.mode, *run.client.arguments]
    environment = os.environ | {"PONTOON_TEST_CACHE": str(CACHE), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(
            [str(word) for word in command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CLIENT_SECONDS,
        )
        output, status = ended.stdout, f"status {ended.returncode}"
    except subprocess.TimeoutExpired as expired:
        output, status = expired.stdout or b"", f"no end after {CLIENT_SECONDS} s"
    lines = output.decode(errors="replace").splitlines()
    summary = re.fullmatch(r"(\d+) passed, (\d+) failed", lines[-1]) if lines else None
    if summary is None:
        return Outcome(0, 1, [f"FAIL {run} ended without a summary: {status}", *lines[-15:]])
    passed, failed = int(summary[1]), int(summary[2])
    if failed == 0 and status != "status 0":
        return Outcome(passed, 1, [f"FAIL {run} ended with {status}", *lines[-15:]])
    shown = lines if verbose else [line for line in lines if line.startswith("FAIL")]
    return Outcome(passed, failed, shown)


class Bridge:
    """The bridge on a free port, with its servers behind it in both modes."""

    def __init__(self, program: pathlib.Path, fixture: pathlib.Path, directory: pathlib.Path) -> None:
        self.program = program.resolve(strict=True)
        # A copy of its own, and a mark on command lines, tell this run's children from anyone else's.
        self.fixture = directory / "fixture-server"
        shutil.copy(fixture, self.fixture)
        self.mark = directory.name
        self.directory = directory
        self.log: list[str] = []
        self.process: subprocess.Popen | None = None
        self.address: str | None = None
        self.listening = threading.Event()

    def start(self, names: set[str]) -> None:
        servers = {f"{name}-{mode}": self.server(name) | {"mode": mode} for name in sorted(names) for mode in MODES}
        config = self.directory / "servers.json"
        config.write_text(json.dumps({"mcpServers": servers}, indent=2))
        self.process = subprocess.Popen(
            [self.program, "serve", "--config", config, "--listen", "127.0.0.1:0"],
            cwd=self.directory,
            # Each client makes 20 calls at once, which is more than a small machine allows by itself.
            env=os.environ | {"MCPO_MAX_CONCURRENT": "64", "MCPO_STATE_DIR": str(self.directory / "state"),
                              "MCPO_JOBS_DIR": str(self.directory / "jobs")},
            stdin=subprocess.DEVNULL,
            # The log, beside what is told on standard error.
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        for output in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self.read_log, args=[output], daemon=True).start()
        if not self.listening.wait(START_SECONDS) or self.address is None:
            raise SystemExit("the bridge did not say where it listens:\n" + "\n".join(self.log[-20:]))

    def server(self, name: str) -> dict:
        if name.startswith("filesystem-"):
            name = "filesystem"
        packages = "node_modules/@modelcontextprotocol"
        filesystem = CACHE / "filesystem" / packages / "server-filesystem/dist/index.js"
        everything = CACHE / "everything" / packages / "server-everything/dist/index.js"
        program, *arguments = {
            "fixture": [self.fixture],
            "time": [CACHE / "py-time/bin/python", "-X", f"mark={self.mark}", "-m", "mcp_server_time"],
            "everything": [CACHE / "node22/bin/node", f"--title={self.mark}", everything, "stdio"],
            # Without folders: its client has to lend them.
            "filesystem": [CACHE / "node22/bin/node", f"--title={self.mark}", filesystem],
        }[name]
        return {"command": str(program), "args": [str(argument) for argument in arguments]}

    def read_log(self, output: typing.TextIO) -> None:
        for line in output:
            self.log.append(line.rstrip("\n"))
            # The log may be coloured, so the address is searched for, not split off.
            address = re.search(r"http://127\.0\.0\.1:[1-9]\d*", line)
            if address and self.address is None:
                self.address = address[0]
                self.listening.set()
        if output is self.process.stderr:
            self.listening.set()

    def url(self, run: Run) -> str:
        return f"{self.address}/{run.client.path}/{run.client.server}-{run.mode}"

    def stop(self) -> list[str]:
        """Stops the bridge and says what was wrong with its end."""
        if self.process is None:
            return []
        complaints = []
        if self.process.poll() is not None:
            complaints.append(f"FAIL the bridge ended by itself with status {self.process.returncode}")
        else:
            self.process.send_signal(signal.SIGTERM)
            try:
                status = self.process.wait(STOP_SECONDS)
                if status != 0:
                    complaints.append(f"FAIL the bridge ended with status {status} after SIGTERM")
            except subprocess.TimeoutExpired:
                complaints.append(f"FAIL the bridge still ran {STOP_SECONDS} s after SIGTERM")
                self.process.kill()
                self.process.wait()
        # What was killed on the way out may need a moment to vanish.
        deadline = time.monotonic() + 1
        while self.children() and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid, command in self.children().items():
            complaints.append(f"FAIL process {pid} was left behind: {command}")
            os.kill(pid, signal.SIGKILL)
        return complaints

    def children(self) -> dict[int, str]:
        """This run's servers by process id, whoever their parent is by now. Linux only."""
        found = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                program = os.readlink(entry / "exe")
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            is_marked = f"-X mark={self.mark} " in command or command.startswith(self.mark)
            if program == str(self.fixture) or is_marked:
                found[int(entry.name)] = command
        return found


if __name__ == "__main__":
    main()
