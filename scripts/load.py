#!/usr/bin/env python3
"""How much the bridge carries: 50 clients at one replica, 500 through nginx at one and at three.

    scripts/load.py --pontoon target/release/pontoon --fixture target/release/fixture-server

Every client is a chat of its own, keeps one connection open and calls a cheap server as fast as it is
answered, for `--seconds` or `--calls`, whatever comes first. Loopback only. An answer that is neither the
right one nor an honest 429 (with `Retry-After`) is an error, and then this ends with 1; so does a missed
goal. The clients, nginx and all replicas share this machine, so compare runs with each other, not with
another machine.
"""

import argparse
import asyncio
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests" / "deploy"))

from front import Nginx, OpenWebUi  # noqa: E402
from replicas import Client, Replica, free_port, modern_call  # noqa: E402

# What one replica may have running at once, here: more than the 4 for each core that hold otherwise.
MAX_CONCURRENT = 200
FILE_BYTES = 1 << 20
# Goals for one replica and for three: requests a second, and the mean of an answer in seconds; and how
# soon a download begins.
GOAL_ONE, GOAL_THREE, GOAL_MEAN, GOAL_DOWNLOAD = 10, 100, 5.0, 1.0


@dataclass
class Tally:
    """What one run saw."""

    name: str
    clients: int
    seconds: float = 0
    waits: list[float] = field(default_factory=list)
    busy: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.waits) / self.seconds if self.seconds else 0

    def row(self) -> str:
        waits = sorted(self.waits) or [float("nan")]
        p50, p99 = (waits[min(len(waits) - 1, int(len(waits) * part))] for part in (0.5, 0.99))
        milliseconds = [value * 1000 for value in (statistics.fmean(waits), p50, p99)]
        return (
            f"{self.name:<34}{self.clients:>8}{len(self.waits):>9}{self.rate:>9.0f}"
            + "".join(f"{value:>10.1f}" for value in milliseconds)
            + f"{self.busy:>7}{len(self.errors):>8}"
        )


HEADER = f"{'':<34}{'clients':>8}{'answered':>9}{'per s':>9}{'mean ms':>10}{'p50 ms':>10}{'p99 ms':>10}{'429s':>7}{'errors':>8}"


def request(path: str, body: bytes, headers: dict) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, str, bytes, float]:
    """Status, head, body, and when the first byte of the body was there."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status = int(head.split(" ", 2)[1])
    length = re.search(r"(?im)^content-length: *(\d+)", head)
    if length:
        first = await reader.read(min(int(length[1]), 65536)) if int(length[1]) else b""
        began = time.monotonic()
        return status, head, first + await reader.readexactly(int(length[1]) - len(first)), began
    body, began = b"", 0.0
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
        began = began or time.monotonic()
    await reader.readline()
    return status, head, body, began


async def one_client(address: tuple[str, int], server: str, tally: Tally, until: float, calls: int) -> None:
    marker = str(uuid.uuid4())
    body, headers = modern_call("echo", {"text": marker})
    headers |= {"X-OpenWebUI-User-Id": f"user-{marker}", "X-OpenWebUI-Chat-Id": marker}
    asked = request(f"/mcp/{server}", body, headers)
    try:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(calls):
            began = time.monotonic()
            if began >= until:
                break
            writer.write(asked)
            status, head, answer, _ = await asyncio.wait_for(read_answer(reader), 120)
            if status == 200 and marker.encode() in answer and b'"result"' in answer:
                tally.waits.append(time.monotonic() - began)
            elif status == 429 and (wait := re.search(r"(?im)^retry-after: *(\d+)", head)):
                tally.busy += 1
                await asyncio.sleep(min(int(wait[1]), 1))
            else:
                tally.errors.append(f"HTTP {status}: {answer[:200].decode(errors='replace')}")
        writer.close()
    except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
        tally.errors.append(f"{type(error).__name__}: {error}")


async def many_clients(address: tuple[str, int], server: str, tally: Tally, options: argparse.Namespace) -> Tally:
    began = time.monotonic()
    until = began + options.seconds
    share = max(1, options.calls // tally.clients)
    await asyncio.gather(*(one_client(address, server, tally, until, share) for _ in range(tally.clients)))
    tally.seconds = time.monotonic() - began
    return tally


async def downloads(address: tuple[str, int], path: str, size: int, clients: int) -> Tally:
    """How soon the first bytes of a file are there."""
    tally = Tally("start of a download, through nginx", clients)

    async def one() -> None:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(5):
            began = time.monotonic()
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            status, _, body, first = await asyncio.wait_for(read_answer(reader), 60)
            if status == 200 and len(body) == size:
                tally.waits.append(first - began)
            else:
                tally.errors.append(f"HTTP {status}, {len(body)} of {size} bytes")
        writer.close()

    began = time.monotonic()
    await asyncio.gather(*(one() for _ in range(clients)))
    tally.seconds = time.monotonic() - began
    return tally


class Setting:
    """`count` replicas with one jobs directory, and nginx before them."""

    def __init__(self, options: argparse.Namespace, directory: pathlib.Path, count: int) -> None:
        directory.mkdir()
        self.openwebui = OpenWebUi()
        fixture = {"command": str(options.fixture)}
        servers = {"stateless": fixture, "warm": fixture | {"warm": 8}, "stateful": fixture | {"mode": "stateful"}}
        settings = {
            "MCPO_MAX_CONCURRENT": str(MAX_CONCURRENT),
            "MCPO_QUEUE_WAIT": "30",
            "MCPO_STATEFUL_MAX_TOTAL_PROCESSES": "600",
            "MCPO_JOBS_DIR": str(directory / "jobs"),
            "MCPO_TRUSTED_PROXIES": "127.0.0.1",
            "MCPO_LOG_LEVEL": "ERROR",
        }
        self.replicas = [
            Replica(options.pontoon, directory / f"replica-{n}", f"127.0.0.1:{free_port()}", servers, settings)
            for n in range(count)
        ]
        # The configuration has three lines; one replica stands in all of them.
        places = [self.replicas[n % count].listen for n in range(3)]
        self.nginx = Nginx(options.nginx, "nginx-debian.conf", directory / "nginx", places, self.openwebui.address)

    def __enter__(self) -> "Setting":
        try:
            for replica in self.replicas:
                replica.wait_until_ready()
            self.nginx.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.nginx.stop()
        for replica in self.replicas:
            for complaint in replica.stop():
                print(f"FAIL {complaint}")
        self.openwebui.shutdown()

    @property
    def front(self) -> tuple[str, int]:
        return "127.0.0.1", self.nginx.port

    @property
    def first(self) -> tuple[str, int]:
        host, port = self.replicas[0].listen.rsplit(":", 1)
        return host, int(port)


def measure(options: argparse.Namespace, directory: pathlib.Path) -> list[Tally]:
    tallies = []

    def run(name: str, address: tuple[str, int], server: str, clients: int) -> None:
        tallies.append(asyncio.run(many_clients(address, server, Tally(name, clients), options)))
        print(tallies[-1].row(), flush=True)

    print(HEADER, flush=True)
    with Setting(options, directory / "one", 1) as setting:
        run("one replica, stateless", setting.first, "stateless", 50)
        run("one replica, stateless, 8 spares", setting.first, "warm", 50)
        run("one replica, stateful", setting.first, "stateful", 50)
        run("one replica behind nginx", setting.front, "stateless", options.many)
        run("one behind nginx, stateful", setting.front, "stateful", options.many)
    with Setting(options, directory / "three", 3) as setting:
        run("three replicas behind nginx", setting.front, "stateless", options.many)
        run("three behind nginx, stateful", setting.front, "stateful", options.many)
        with Client(setting.nginx.url, {"X-OpenWebUI-User-Id": "ada", "X-OpenWebUI-Chat-Id": "files"}) as client:
            result = client.call("stateless", "write_file", {"name": "large.bin", "text": "x" * FILE_BYTES})
        path = re.search(r"/files/[0-9a-f-]{36}/large\.bin[^\s\"\\)>\]]*", json.dumps(result))
        if path is None:
            sys.exit(f"no link in {json.dumps(result)[:500]}")
        tallies.append(asyncio.run(downloads(setting.front, path[0], FILE_BYTES, 50)))
        print(tallies[-1].row(), flush=True)
    return tallies


def judge(tallies: list[Tally]) -> list[str]:
    """What was promised and did not hold."""
    failures = [f"{tally.name}: {len(tally.errors)} errors, first {tally.errors[0]}" for tally in tallies if tally.errors]
    for tally in tallies:
        if not tally.waits:
            failures.append(f"{tally.name}: nothing was answered")
        elif "download" in tally.name:
            late = max(tally.waits)
            if late > GOAL_DOWNLOAD:
                failures.append(f"{tally.name}: {late:.2f} s at worst, more than {GOAL_DOWNLOAD} s")
        else:
            goal = GOAL_THREE if tally.name.startswith("three") else GOAL_ONE
            if tally.rate < goal:
                failures.append(f"{tally.name}: {tally.rate:.0f} requests a second, fewer than {goal}")
            if statistics.fmean(tally.waits) > GOAL_MEAN:
                failures.append(f"{tally.name}: {statistics.fmean(tally.waits):.1f} s on average, more than {GOAL_MEAN}")
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--fixture", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--nginx", default=shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"))
    parser.add_argument("--seconds", type=float, default=8, help="how long each run may take")
    parser.add_argument("--calls", type=int, default=50_000, help="how many calls each run may make")
    parser.add_argument("--many", type=int, default=500, help="the clients through nginx")
    options = parser.parse_args()
    if not options.nginx:
        sys.exit("no nginx: install it (apt install nginx-light) or name it with --nginx")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="pontoon-load-") as directory:
        tallies = measure(options, pathlib.Path(directory))
    rates = {tally.name: tally.rate for tally in tallies}
    effect = rates["three replicas behind nginx"] / max(rates["one replica behind nginx"], 0.001)
    print(f"three replicas against one: {effect:.2f} times the requests a second, on {os.cpu_count()} cores shared by all")
    failures = judge(tallies)
    for failure in failures:
        print(f"FAIL {failure}")
    print("every goal was met" if not failures else f"{len(failures)} goals were missed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
