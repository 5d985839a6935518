"""mcpo and Pontoon before the same servers, for the programs of this folder.

Standard library and loopback only. Both have their servers from one table, in the form of mcpo's configuration; what only Pontoon
needs besides, a mode or a workspace, mcpo does not read.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
sys.path[:0] = [str(REPOSITORY / "tests" / "deploy"), str(HERE)]

import cases_server  # noqa: E402
import replicas  # noqa: E402
from replicas import Client, Replica, free_port  # noqa: E402, F401

INSTALLS = ["mcpo", "node22", "py-time", "everything", "memory", "office-excel"]
START_SECONDS = 60
STOP_SECONDS = 20
# Eight servers start at once, on a machine that may be busy.
replicas.START_SECONDS = START_SECONDS
CASES = HERE / "cases_server.py"
# Open WebUI says with every call whose it is. A server with a folder for each chat needs that, and mcpo does not read it.
IDENTITY = {"X-OpenWebUI-User-Id": "id-of-ada", "X-OpenWebUI-Chat-Id": "chat-of-ada"}


# Of mcpo and `pontoon mcpo`, by their addresses.
PIDS: dict[str, int] = {}


def cases(*words: str) -> dict:
    return {"command": sys.executable, "args": ["-IS", str(CASES), *words], "mode": "shared"}


def servers(kind: str, folder: pathlib.Path) -> dict:
    """The servers from the wild and the cases, for one of the two bridges, which keeps its files in the folder."""
    node, packages = str(CACHE / "node22/bin/node"), "node_modules/@modelcontextprotocol"
    time = {"command": str(CACHE / "py-time/bin/python"), "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"], "mode": "shared"}
    return {
        "cases": cases(),
        "paged": cases("paged"),
        "time": time,
        # The same without one of its tools.
        "half": time | {"disabledTools": ["convert_time"]},
        "everything": {
            "command": node,
            "args": [str(CACHE / "everything" / packages / "server-everything/dist/index.js"), "stdio"],
            "mode": "shared",
        },
        "memory": {
            "command": node,
            "args": [str(CACHE / "memory" / packages / "server-memory/dist/index.js")],
            "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")},
            "mode": "shared",
        },
        "excel": {
            "command": str(CACHE / "office-excel/bin/excel-mcp-server"),
            "args": ["stdio"],
            "env": {"EXCEL_FILES_PATH": str(folder) if kind == "mcpo" else "${MCPO_WORKDIR}"},
            "mode": "stateful",
            "workspace": "session",
        },
        # A server that does not start must not take the others with it.
        "broken": {"command": sys.executable, "args": ["-IS", "-c", "raise SystemExit('this server never starts')"], "mode": "shared"},
    }


def crashing() -> dict:
    """A server for each tool with which mcpo does not load a server."""
    return {name: cases(name) for name in cases_server.CRASHES}


def with_config(folder: pathlib.Path, servers: dict) -> list:
    """The options that name a configuration with these servers, which is written to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": servers}, indent=2))
    return ["--config", config]


def mcpo(folder: pathlib.Path, *options, **settings):
    """The address of mcpo with these options, among which are those of its servers."""
    return by_command_line([CACHE / "mcpo/bin/mcpo"], folder, *options, **settings)


def pontoon_mcpo(program: pathlib.Path, folder: pathlib.Path, *options, **settings):
    """The same of `pontoon mcpo`, which has to end as it should, too."""
    return by_command_line([program, "mcpo"], folder, *options, ends_well=True, **settings)


@contextlib.contextmanager
def by_command_line(
    program: list,
    folder: pathlib.Path,
    *options,
    ends_well: bool = False,
    variables: dict | None = None,
    host: str | None = "127.0.0.1",
    log: list[str] | None = None,
):
    """With `host` of none that option is left out, and with a `log` its lines can be read there."""
    folder.mkdir(parents=True, exist_ok=True)
    port, log = free_port(), [] if log is None else log
    options = [*(["--host", host] if host else []), "--port", port, *options]
    kept = {"MCPO_STATE_DIR": str(folder / "state"), "MCPO_JOBS_DIR": str(folder / "jobs")}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MCPO_")}
    process = subprocess.Popen(
        [str(word) for word in [*program, *options]],
        cwd=folder,
        env=inherited | kept | (variables or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    threading.Thread(target=lambda: log.extend(process.stdout), daemon=True).start()
    url = f"{'https' if '--ssl-certfile' in options else 'http'}://127.0.0.1:{port}"
    PIDS[url] = process.pid
    try:
        # mcpo listens when all its servers are there.
        deadline = time.monotonic() + START_SECONDS
        while not is_listening(port):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{program[0]} did not start:\n{''.join(log[-30:])}")
            time.sleep(0.05)
        yield url
    except Exception:
        print(f"last lines of the log of {program[0]}:\n" + "".join(log[-40:]), file=sys.stderr)
        raise
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        # mcpo can hang or leave servers behind, and everything in its session is ours.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    if ends_well and status != 0:
        sys.exit(f"{program[0]} ended with status {status} after SIGTERM:\n{''.join(log[-30:])}")


def is_listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def pontoon(program: pathlib.Path, folder: pathlib.Path, servers: dict | None, settings: dict | None = None):
    """The bridge as a `Replica`; what was wrong with its end is an error."""
    folder.mkdir(parents=True)
    settings = {"MCPO_JOBS_DIR": str(folder / "jobs"), "MCPO_MAX_CONCURRENT": "64"} | (settings or {})
    replica = Replica(program, folder / "bridge", f"127.0.0.1:{free_port()}", servers, settings)
    try:
        replica.wait_until_ready()
        yield replica
    except BaseException:
        print("last lines of Pontoon's log:\n" + "\n".join(line[:400] for line in replica.log[-40:]), file=sys.stderr)
        replica.stop()
        raise
    if complaints := replica.stop():
        sys.exit("\n".join(complaints))
