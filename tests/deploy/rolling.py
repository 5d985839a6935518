#!/usr/bin/env python3
"""A rolling restart of three replicas behind real nginx, under load, five times over.

    tests/deploy/rolling.py --pontoon target/release/pontoon --fixture target/release/fixture-server

Each replica is ended by SIGTERM and started again as soon as it is gone; the next follows as soon as `/ready`
says so. No call to a `stateless` server may fail, and no session of the older protocol may be lost. A chat with a
`stateful` server is told once what it lost, and goes on. `nginx-debian.conf` is run by every nginx from 1.22 on,
`nginx.conf` as well from 1.29.6 on. Ends with `N passed, N failed`.
"""

import argparse
import collections
import pathlib
import sys
import tempfile
import threading
import time
import uuid

from nginx import Scene, chat, programs, shipped_files, written
from front import version_of
from replicas import CallFailed, Session

ROUNDS = 5
CALLERS = 6
SESSIONS = 4
# Conversations with a `stateful` server that pause during the restarts, and that do not.
QUIET = 6
BUSY = 2
# Calls that are answered before the next round begins.
BETWEEN = 200


class Load:
    """Clients that call without a pause until they are told to stop, and what went wrong for them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.is_over = threading.Event()
        self.calls = collections.Counter()
        self.failures: list[str] = []
        self.clients: list[threading.Thread] = []

    def add(self, kind: str, count: int, work) -> None:
        """`count` clients of a kind. `work` is a generator that makes one call for each step."""
        for _ in range(count):
            self.clients.append(threading.Thread(target=self.run, args=[kind, work], daemon=True))

    def run(self, kind: str, work) -> None:
        began = time.monotonic()
        steps = None
        while not self.is_over.is_set():
            try:
                steps = steps or work(self.scene)
                next(steps)
                self.calls[kind] += 1
            except (CallFailed, OSError, AssertionError) as error:
                self.failures.append(f"{kind} after {time.monotonic() - began:.2f} s: {type(error).__name__}: {error}")
                steps = None

    def start(self) -> None:
        for client in self.clients:
            client.start()

    def wait_for(self, calls: int) -> None:
        """Until so many more calls were answered, or one failed."""
        deadline = time.monotonic() + 30
        enough = sum(self.calls.values()) + calls
        while sum(self.calls.values()) < enough and not self.failures:
            assert time.monotonic() < deadline, "there is no load"
            time.sleep(0.01)

    def stop(self) -> None:
        self.is_over.set()
        for client in self.clients:
            client.join(60)
        still = sum(client.is_alive() for client in self.clients)
        if still:
            self.failures.append(f"{still} clients still wait for an answer")


def modern_calls(scene: Scene):
    """One connection and one chat, every answer stamped."""
    headers = chat()
    with scene.client(headers=headers) as client:
        while True:
            stamp = str(uuid.uuid4())
            said = client.text("stateless", "echo", {"text": stamp})
            assert said == stamp, f"an answer of another call: {said}"
            yield


def one_session(scene: Scene):
    """Opened before the first restart, used until after the last one."""
    with scene.client(headers=chat()) as client:
        session = Session(client, "stateless")
        while True:
            stamp = str(uuid.uuid4())
            said = session.text("echo", {"text": stamp})
            assert said == stamp, f"an answer of another call: {said}"
            yield


def turns(scene: Scene):
    """A session for each turn on a new connection, as Open WebUI has it for older servers."""
    while True:
        with scene.client(headers=chat()) as client:
            session = Session(client, "stateless")
            assert session.text("echo", {"text": "a turn"}) == "a turn"
            status = session.delete()
            assert status == 200, f"the session ended with HTTP {status}"
        yield


class Counting:
    """A conversation with a `stateful` server, which counts its calls in memory."""

    def __init__(self, scene: Scene, is_legacy: bool) -> None:
        # Without a chat the session itself is the conversation.
        self.client = scene.client(headers={"X-Session-Id": str(uuid.uuid4())} if is_legacy else chat())
        self.session = Session(self.client, "stateful") if is_legacy else None
        self.count = 0
        self.losses = 0

    def call(self) -> None:
        """One call: it counts on, or says that the count is lost."""
        result = self.session.call("tally") if self.session else self.client.call("stateful", "tally")
        text = result["content"][0]["text"]
        if result.get("isError"):
            assert "what it had in memory is lost" in text, text
            assert self.count > 0, "told twice, or there was nothing to lose"
            self.count = 0
            self.losses += 1
        else:
            assert text == str(self.count + 1), f"counted to {self.count}, and the next is {text}: lost without a word"
            self.count += 1


def busy_count(scene: Scene):
    """On a new connection each time, so by any process of nginx: each has connections of its own."""
    counting = Counting(scene, is_legacy=False)
    while True:
        with scene.client(headers=counting.client.headers) as counting.client:
            counting.call()
        yield


def count_a_little(quiet: list[Counting], losses: int) -> None:
    """Three calls in each conversation: of those before a restart, the first says what was lost."""
    for counting in quiet:
        for _ in range(3):
            counting.call()
        assert counting.losses == losses, f"{counting.losses} losses were told after {losses} restarts"


def downloads(scene: Scene):
    """A file that one replica made, from any of them."""
    with scene.client(headers=chat()) as client:
        result = client.call("stateless", "write_file", {"name": "kept.txt", "text": "kept"})
        path = next(part["uri"] for part in result["content"] if part["type"] == "resource_link")
        while True:
            with client.send("GET", path) as response:
                body = response.read()
            assert response.status == 200 and body == b"kept", f"HTTP {response.status}: {body[:200]}"
            yield


def roll(scene: Scene) -> list[str]:
    """Every replica once, one after another."""
    return [complaint for replica in scene.replicas for complaint in replica.restart()]


def run(options: argparse.Namespace, program: str, main: str) -> bool:
    print(f"# nginx {written(version_of(program))} with {main}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pontoon-rolling-") as directory:
        scene = Scene(options, program, main, pathlib.Path(directory))
        load = Load(scene)
        load.add("modern call", CALLERS, modern_calls)
        load.add("call in one session", SESSIONS, one_session)
        load.add("turn", 2, turns)
        load.add("download", 1, downloads)
        load.add("stateful call", BUSY, busy_count)
        failures = []
        try:
            scene.start()
            quiet = [Counting(scene, is_legacy=number % 2 == 1) for number in range(QUIET)]
            count_a_little(quiet, 0)
            load.start()
            for number in range(1, options.rounds + 1):
                load.wait_for(BETWEEN)
                began, before = time.monotonic(), sum(load.calls.values())
                failures += roll(scene)
                count_a_little(quiet, number)
                calls = sum(load.calls.values()) - before
                print(f"     round {number}: {calls} calls in {time.monotonic() - began:.1f} s", flush=True)
        except (CallFailed, OSError, AssertionError) as error:
            failures.append(f"{type(error).__name__}: {error}")
        finally:
            load.stop()
            failures += load.failures + scene.stop()
        for failure in failures[:10]:
            print(f"     {failure[:400]}")
        if failures:
            print("\n".join(f"     {line}" for line in scene.nginx.errors().splitlines()[-5:]))
        counts = ", ".join(f"{count} of {kind}" for kind, count in sorted(load.calls.items()))
        verdict = "FAIL" if failures else "ok  "
        print(f"{verdict} {options.rounds} rolling restarts: {len(failures)} failures; answered: {counts}", flush=True)
    return not failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = programs(parser)
    passed = [run(options, program, main) for program, main in shipped_files(options)]
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
