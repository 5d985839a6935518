#!/usr/bin/env python3
"""How many calls mcpo and `pontoon mcpo` carry to the same server, by the same command line and requests, in turns in one run.

    scripts/test.sh throughput          installs mcpo and wrk, builds both programs, and runs this:
    tests/interop/mcpo/throughput.py --pontoon target/release/pontoon --server target/release/cheap-server [--seconds 5]

The server is one process behind both, `cheap-server`, which costs next to nothing; its `echo` is posted to at `/cheap/echo`, as Open WebUI
does, by 16 and by 64 connections of wrk (`PONTOON_WRK` may name it); then its document is fetched by 16, as Open WebUI does for every message
of a chat. Printed are the medians over the rounds of calls and documents a second, of the time within which half and 99 of 100 answers came, the
memory of the bridge without its server after the load (a page that several processes have counts once; and what of that is no page of a file, such as
the program's own, which the system can drop and read again), and the ratios with their goals. The numbers are for docs/benchmarks.md; it ends with 1
if a goal is missed.
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import typing

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bridges  # noqa: E402

ROUNDS = 3
CALL = """
wrk.method = "POST"
wrk.body = '{"text":"hello over there"}'
wrk.headers["Content-Type"] = "application/json"
"""
COUNT = """
done = function(summary, latency)
    print(string.format("counted %d %d %d %d", summary.requests, summary.duration, latency:percentile(50), latency:percentile(99)))
    print(string.format("failed %d", summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout))
end
"""


class Load(typing.NamedTuple):
    """Requests of one kind, and how many connections make them at once."""

    what: str
    clients: int
    path: str
    script: str

    def __str__(self) -> str:
        return f"{self.clients} clients: {self.what}"


LOADS = [Load("calls", clients, "echo", CALL + COUNT) for clients in [16, 64]] + [Load("documents", 16, "openapi.json", COUNT)]


class Round(typing.NamedTuple):
    """What one load found: requests a second, and times in microseconds."""

    rate: float
    half: float
    most: float


def measure(wrk: str, url: str, load: Load, seconds: int, folder: pathlib.Path) -> Round:
    script = folder / f"{load.what}.lua"
    script.write_text(load.script)
    command = [wrk, "-t1", f"-c{load.clients}", f"-d{seconds}s", "--timeout", "10s", "-s", script, f"{url}/cheap/{load.path}"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 60).stdout
    failed = re.search(r"^failed (\d+)$", said, re.M)
    if not failed or failed[1] != "0":
        sys.exit(f"requests failed:\n{said}")
    requests, duration, half, most = map(int, re.search(r"^counted (\d+) (\d+) (\d+) (\d+)$", said, re.M).groups())
    return Round(requests / (duration / 1e6), half, most)


def memory_bytes(pid: int, leave_out: str, kind: str) -> int:
    """Of a process and all its children, without those that run this program. Linux only."""
    found = 0
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "exe") == leave_out or not is_of(int(entry.name), pid):
                continue
            found += int(re.search(rf"^{kind}:\s+(\d+)", (entry / "smaps_rollup").read_text(), re.M)[1]) * 1024
        except (OSError, TypeError):
            continue
    return found


def is_of(pid: int, parent: int) -> bool:
    while pid > 1:
        if pid == parent:
            return True
        pid = int(re.search(r"^PPid:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--server", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--seconds", type=int, default=5, help="of each load; there are 18 and a short one before each")
    options = parser.parse_args()
    wrk = os.environ.get("PONTOON_WRK") or shutil.which("wrk") or sys.exit("wrk is needed: install it (scripts/test.sh throughput does), or name it in PONTOON_WRK")
    subprocess.run([bridges.REPOSITORY / "scripts" / "setup-tests.sh", "mcpo"], check=True)
    with tempfile.TemporaryDirectory(prefix="pontoon-throughput-") as folder:
        folder = pathlib.Path(folder)
        servers = {"cheap": {"command": str(options.server)}}
        words = {kind: [*bridges.with_config(folder / kind, servers), "--log-level", "ERROR"] for kind in ["mcpo", "pontoon"]}
        with (
            bridges.mcpo(folder / "mcpo", *words["mcpo"]) as mcpo,
            bridges.pontoon_mcpo(options.pontoon, folder / "pontoon", *words["pontoon"]) as pontoon,
        ):
            urls = {"mcpo": mcpo, "pontoon": pontoon}
            rounds = {(name, load): [] for load in LOADS for name in urls}
            for load in LOADS:
                for _ in range(ROUNDS):
                    for name, url in urls.items():
                        measure(wrk, url, load, 1, folder)
                        rounds[name, load].append(measure(wrk, url, load, options.seconds, folder))
            memory = {
                what: [memory_bytes(bridges.PIDS[url], str(options.server), kind) for url in urls.values()]
                for what, kind in [("memory", "Pss"), ("  without pages of files", "Pss_Anon")]
            }
    print(f"{'':<28}{'mcpo':>14}{'pontoon':>14}{'ratio':>9}  goal")
    are_met = []
    for load in LOADS:
        goals = {"rate": (10, None), "most": (None, 1)} if load.what == "calls" else {}
        for what, of, unit in [("", "rate", "/s"), (", p50", "half", " us"), (", p99", "most", " us")]:
            medians = [statistics.median(getattr(it, of) for it in rounds[name, load]) for name in urls]
            are_met.append(show(f"{load}{what}", medians, unit, *goals.get(of, ())))
    for what, each in memory.items():
        are_met.append(show(what, [bytes_ / 1e6 for bytes_ in each], " MB", None, 0.2 if what == "memory" else None))
    sys.exit(0 if all(are_met) else 1)


def show(what: str, values: list[float], unit: str, least: float | None = None, most: float | None = None) -> bool:
    """Prints a row, and says whether its ratio is as it should be."""
    mcpo, pontoon = values
    ratio = pontoon / mcpo
    is_met = (least is None or ratio >= least) and (most is None or ratio <= most)
    goal = f">= {least}" if least is not None else f"<= {most}" if most is not None else ""
    print(f"{what:<28}{f'{mcpo:,.0f}{unit}':>14}{f'{pontoon:,.0f}{unit}':>14}{ratio:>9.2f}  {goal}{'' if is_met else ': missed'}")
    return is_met


if __name__ == "__main__":
    main()
