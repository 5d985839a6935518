#!/usr/bin/env python3
"""What the Office servers of examples/office-tools and the bridge before them take: the measurement behind "300 people" in docs/operations.md.

    scripts/setup-tests.sh office-excel office-powerpoint
    scripts/sizing.py --pontoon target/release/pontoon

Some 400 calls over loopback, two minutes on two cores. Memory is counted by its proportional part (`Pss`), so that pages which
processes share count once; CPU is that of the bridge, of its helper, and of all servers that they started. Linux only.
"""

import argparse
import concurrent.futures
import contextlib
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
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
INSTALLS = {"ppt_mcp_server": "office-powerpoint", "excel-mcp-server": "office-excel"}
KEY = "a-key-of-this-measurement"
CHATS, STEPS, BOOKS, BOOK_CALLS, SESSIONS = 20, 10, 12, 8, 300
TICKS = os.sysconf("SC_CLK_TCK")


class Bridge:
    """The bridge with both Office servers, and what it and its servers take."""

    def __init__(self, program: pathlib.Path, directory: pathlib.Path) -> None:
        text = (REPOSITORY / "examples" / "office-tools" / "mcp-servers.json").read_text()
        for command, install in INSTALLS.items():
            text = text.replace(f'"command": "{command}"', f'"command": "{CACHE / install / "bin" / command}"')
        # The installs lie where confined processes may not read, unless it is said; the measurement is of `basic`.
        text = re.sub(r'"isolation": \{[^}]*\}', '"isolation": "basic"', text)
        (directory / "mcp-servers.json").write_text(text)
        self.jobs = directory / "jobs"
        own = {"MCPO_API_KEY": KEY, "MCPO_JOBS_DIR": str(self.jobs), "MCPO_STATE_DIR": str(directory / "state"), "MCPO_QUEUE_WAIT": "120"}
        kept = {name: os.environ[name] for name in ["PATH", "HOME"] if name in os.environ}
        command = [program, "serve", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, cwd=directory, env=kept | own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, start_new_session=True)
        for line in self.process.stdout:
            if found := re.search(r"listening on (http://\S+)", line):
                self.url = found[1].rstrip("/")
                break
        else:
            sys.exit("the bridge did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        while self.status("/ready") != 200:
            time.sleep(0.1)

    def status(self, path: str) -> int:
        try:
            return urllib.request.urlopen(self.url + path, timeout=10).status
        except urllib.error.HTTPError as error:
            return error.code

    def post(self, server: str, message: dict, **who: str) -> dict:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": f"Bearer {KEY}"}
        request = urllib.request.Request(f"{self.url}/mcp/{server}", json.dumps(message).encode(), headers | who)
        with urllib.request.urlopen(request, timeout=300) as response:
            text = response.read().decode()
        answer = json.loads(text if text.startswith("{") else text.split("data: ", 1)[1])
        assert "error" not in answer, answer
        return answer

    def call(self, server: str, chat: int, tool: str, **arguments) -> float:
        """Calls a tool for a person in a chat, and says how long it took."""
        began = time.monotonic()
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        who = {"X-OpenWebUI-User-Id": f"user-{chat}", "X-OpenWebUI-Chat-Id": f"chat-{chat}"}
        answer = self.post(server, {**message, "params": message["params"]}, **who)
        assert not answer["result"].get("isError"), answer
        return time.monotonic() - began

    def processes(self) -> list[int]:
        """The bridge, its helper, and all servers."""
        parents = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents[int(entry.parent.name)] = int(entry.read_text().rsplit(")", 1)[1].split()[1])
        family = [self.process.pid]
        for pid in family:
            family += [child for child, parent in parents.items() if parent == pid]
        return family

    def cpu(self) -> float:
        """Seconds of all processes, those included that have ended and were waited for."""
        ticks = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                ticks += sum(map(int, words[11:15]))
        return ticks / TICKS

    def servers(self) -> list[int]:
        """Those that run Python: not the bridge and not its helper."""
        found = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                if "python" in os.readlink(f"/proc/{pid}/exe"):
                    found.append(pid)
        return found


def megabytes(pids: list[int], field: str = "Pss") -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(re.search(rf"(?m)^{field}: +(\d+) kB", text)[1])
    return total / 1000


def disk(folder: pathlib.Path) -> tuple[int, int]:
    """Bytes as the disk counts them, and how many files and folders."""
    found = [path.lstat() for path in folder.rglob("*")]
    return sum(it.st_blocks * 512 for it in found), len(found)


def told(what: str, value: str) -> None:
    print(f"{what:72} {value}", flush=True)


def middle(times: list[float]) -> str:
    times = sorted(times)
    return f"p50 {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s"


def measure_bridge(bridge: Bridge) -> None:
    own = [bridge.process.pid]
    helper = [pid for pid in bridge.processes() if pid not in own and pid not in bridge.servers()]
    idle = megabytes(own)
    told("the bridge, idle; of that not from its file; its helper", f"{idle:.1f} MB; {megabytes(own, 'Anonymous'):.1f} MB; {megabytes(helper):.1f} MB")
    info = {"name": "sizing", "version": "1"}
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    for _ in range(SESSIONS):
        bridge.post("excel", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening})
    told(f"the same with {SESSIONS} MCP sessions", f"{megabytes(own):.1f} MB")


def measure_powerpoint(bridge: Bridge, pool: concurrent.futures.Executor) -> None:
    before = bridge.cpu()
    chats = range(CHATS)
    list(pool.map(lambda chat: bridge.call("powerpoint", chat, "create_presentation", id="p"), chats))
    started = bridge.cpu()
    told(f"PowerPoint, CPU of the first call of a chat ({CHATS} chats)", f"{(started - before) / CHATS:.2f} s")
    fresh, (bytes_before, files_before) = megabytes(bridge.servers()) / CHATS, disk(bridge.jobs)
    add = lambda chat: [bridge.call("powerpoint", chat, "add_slide", presentation_id="p", layout_index=0, title="Sales") for _ in range(STEPS)]
    times = sum(pool.map(add, chats), [])
    told(f"PowerPoint, CPU of a further call ({CHATS * STEPS} calls)", f"{(bridge.cpu() - started) / CHATS / STEPS * 1000:.0f} ms")
    told("PowerPoint, a further call", middle(times))
    list(pool.map(lambda chat: bridge.call("powerpoint", chat, "save_presentation", presentation_id="p", file_path="p.pptx"), chats))
    servers = bridge.servers()
    told("PowerPoint, memory of a process: fresh; with ten slides; the same by RSS",
         f"{fresh:.0f} MB; {megabytes(servers) / CHATS:.0f} MB; {megabytes(servers, 'Rss') / CHATS:.0f} MB ({len(servers)} processes)")
    bytes_after, files_after = disk(bridge.jobs)
    told("PowerPoint, disk of a chat of 12 calls with one file", f"{(bytes_after - bytes_before) / CHATS / 1000:.0f} kB, {(files_after - files_before) / CHATS:.0f} files and folders")
    told("the bridge then", f"{megabytes([bridge.process.pid]):.1f} MB")


def measure_excel(bridge: Bridge, pool: concurrent.futures.Executor) -> None:
    kept = set(bridge.servers())
    most, stop = [(0, 0.0)], threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            now = [pid for pid in bridge.servers() if pid not in kept]
            most.append((len(now), megabytes(now)))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    (bytes_before, files_before), before, began = disk(bridge.jobs), bridge.cpu(), time.monotonic()

    def book(chat: int) -> list[float]:
        rows = [[f"row {n}", n] for n in range(20)]
        first = bridge.call("excel", chat, "create_workbook", path="b.xlsx", sheets=["Data"])
        return [first] + [bridge.call("excel", chat, "write_range", path="b.xlsx", sheet="Data", at="A1", rows=rows) for _ in range(BOOK_CALLS - 1)]

    times = sum(pool.map(book, range(BOOKS)), [])
    took = time.monotonic() - began
    while set(bridge.servers()) - kept:
        time.sleep(0.1)
    stop.set()
    watcher.join()
    calls = BOOKS * BOOK_CALLS
    told(f"Excel, CPU of a call ({calls} calls of {BOOKS} chats at once)", f"{(bridge.cpu() - before) / calls:.2f} s")
    told("Excel, calls", f"{calls / took:.1f} a second; {middle(times)}")
    at_most = max(most)
    told("Excel, most processes at once, and their memory", f"{at_most[0]}, {at_most[1]:.0f} MB; {max(it[1] / it[0] for it in most if it[0]):.0f} MB each at most")
    bytes_after, files_after = disk(bridge.jobs)
    told("Excel, disk of a call", f"{(bytes_after - bytes_before) / calls / 1000:.0f} kB, {(files_after - files_before) / calls:.1f} files and folders")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", type=pathlib.Path, required=True)
    program = parser.parse_args().pontoon.resolve()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="sizing-"))
    bridge = Bridge(program, directory)
    try:
        told("machine", f"{os.cpu_count()} cores, MCPO_MAX_CONCURRENT {4 * os.cpu_count()} by default")
        with concurrent.futures.ThreadPoolExecutor(BOOKS) as pool:
            measure_bridge(bridge)
            measure_powerpoint(bridge, pool)
            measure_excel(bridge, pool)
    finally:
        bridge.process.send_signal(signal.SIGTERM)
        bridge.process.wait(60)
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
