"""The checks every Python client makes, in one order and with one output.

A client file says how its SDK connects, calls and cancels; what must hold is written here.
The same checks are in `../node/checks.mjs` and `../rmcp/src/main.rs`.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

JAPANESE = "桟橋は水に浮かぶ 🌊 — ﾎﾟﾝﾂｰﾝ"
STEPS = 5
BIG_BYTES = 2 * 1024 * 1024
PARALLEL = 20
# A check that takes longer has hung: the slowest needs about a second.
DEADLINE_SECONDS = 30
CANCEL_AFTER_SECONDS = 0.5

OnProgress = Callable[[float], None]


class Connection(Protocol):
    """One connected client of some SDK."""

    protocol_version: str

    async def tool_names(self) -> list[str]: ...

    async def call(self, tool: str, arguments: dict, on_progress: OnProgress | None = None) -> str:
        """The text of the tool's answer; raises when the call fails or the tool says so."""

    async def cancel(self, tool: str, arguments: dict, after: float) -> None:
        """Starts a call and cancels it as this SDK does; raises when the call was not cut short."""


Connect = Callable[[str, str], AbstractAsyncContextManager[Connection]]


async def answer_blue(question: str) -> dict:
    """What a user types when `ask` asks."""
    if "colour" not in question:
        raise ValueError(f"the question arrived as {question!r}")
    return {"answer": "blue"}


async def cut_short(call: Awaitable[str], after: float) -> None:
    """Cancels the task of `call`, which is how asyncio SDKs are told to stop."""
    task = asyncio.ensure_future(call)
    done, _ = await asyncio.wait({task}, timeout=after)
    assert not done, f"ended before it was cancelled: {task}"
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=5)
    assert done and task.cancelled(), f"not cancelled: {task}"


async def lists_tools(connection: Connection) -> None:
    names = await connection.tool_names()
    assert "echo" in names, f"no echo in {names}"


async def echoes(connection: Connection) -> None:
    for text in ["plain", JAPANESE, 'quotes " and \\ and\nnewlines', ""]:
        answer = await connection.call("echo", {"text": text})
        assert answer == text, f"{answer!r} came back for {text!r}"


async def reports_progress(connection: Connection) -> None:
    seen: list[float] = []
    await connection.call("count", {"steps": STEPS, "delay_ms": 20}, seen.append)
    # A copy, so that what comes after the answer does not count.
    before_answer = list(seen)
    assert len(before_answer) == STEPS, f"{before_answer} before the answer, {STEPS} expected"
    assert before_answer == sorted(set(before_answer)), f"out of order: {before_answer}"


async def cancels(connection: Connection) -> None:
    await connection.cancel("wait", {"ms": 60_000}, CANCEL_AFTER_SECONDS)
    start = time.monotonic()
    answer = await connection.call("echo", {"text": "after the cancel"})
    assert answer == "after the cancel", f"{answer!r}"
    took = time.monotonic() - start
    assert took < 5, f"the call after the cancel took {took:.1f} s"


async def elicits(connection: Connection) -> None:
    answer = await connection.call("ask", {"question": "Which colour?"})
    assert answer == "accept:blue", f"{answer!r}"


async def carries_big_answers(connection: Connection) -> None:
    answer = await connection.call("big", {"bytes": BIG_BYTES})
    assert len(answer) == BIG_BYTES, f"{len(answer)} characters"
    assert answer == "x" * BIG_BYTES, "the content differs"


async def keeps_parallel_calls_apart(connection: Connection) -> None:
    texts = [f"call {n} {JAPANESE}" for n in range(PARALLEL)]
    answers = await asyncio.gather(*(connection.call("echo", {"text": text}) for text in texts))
    mixed = [(text, answer) for text, answer in zip(texts, answers) if text != answer]
    assert not mixed, f"{len(mixed)} mixed up, first {mixed[0]}"


CHECKS = [
    ("list tools", lists_tools),
    ("echo", echoes),
    ("progress", reports_progress),
    ("cancel", cancels),
    ("elicitation", elicits),
    ("big answer", carries_big_answers),
    ("parallel calls", keeps_parallel_calls_apart),
]


class Report:
    """Counts and prints one line per check."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    async def check(self, name: str, work: Awaitable[None]) -> bool:
        start = time.monotonic()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await work
        except Exception as error:
            self.failed += 1
            print(f"FAIL {name}: {innermost(error)}", flush=True)
            return False
        self.passed += 1
        print(f"ok   {name} ({time.monotonic() - start:.2f} s)", flush=True)
        return True


def innermost(error: BaseException) -> str:
    """What went wrong, without the task groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


async def run(connect: Connect, url: str, era: str) -> Report:
    report = Report()
    context = connect(url, era)
    connection: Connection | None = None

    async def opens() -> None:
        nonlocal connection
        connection = await context.__aenter__()
        # `auto` falls back in silence: without this line a modern run could pass as a legacy one.
        is_modern = connection.protocol_version >= "2026-07-28"
        assert is_modern == (era != "legacy"), f"{era} speaks {connection.protocol_version}"

    async def closes() -> None:
        await context.__aexit__(None, None, None)

    await report.check("connect", opens())
    if connection is not None:
        for name, check in CHECKS:
            await report.check(name, check(connection))
        await report.check("close", closes())
    return report


def main(connect: Connect, eras: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Checks one Streamable HTTP endpoint.")
    parser.add_argument("url")
    parser.add_argument("--era", choices=eras, default=eras[0])
    parser.add_argument("--server-note", default="", help="printed, to tell runs apart")
    options = parser.parse_args()
    print(f"# {options.url} {options.era} {options.server_note}".rstrip(), flush=True)
    report = asyncio.run(run(connect, options.url, options.era))
    print(f"{report.passed} passed, {report.failed} failed", flush=True)
    sys.exit(1 if report.failed else 0)
