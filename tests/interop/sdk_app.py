#!/usr/bin/env python3
"""A server of the Python SDK mcp 1.30 on its WebSocket transport, as the application behind `pontoon connect`.

    tests/interop/sdk_app.py --pontoon target/release/pontoon

The client is of the same SDK, on standard input and output. The application is away at first, comes, is listed and called, is
killed in the middle of a call, and comes back with another tool. Ends with `N passed, N failed`.
"""

import argparse
import asyncio
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
INSTALL = "py-mcp1"
SECONDS = 60
TOOLS = ["add", "fail", "count", "ask", "hang"]


class Checks:
    """What the client does, one after the other; each has a line of output."""

    def __init__(self, session, changes: asyncio.Queue, start, log: pathlib.Path) -> None:
        self.session, self.changes, self.start, self.log = session, changes, start, log

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, tool: str, arguments: dict | None = None, **options) -> tuple[bool, str]:
        result = await self.session.call_tool(tool, arguments or {}, **options)
        return bool(result.isError), result.content[0].text

    async def no_tools_while_it_is_away(self) -> None:
        assert await self.tools() == []

    async def its_tools_come_with_it(self) -> None:
        self.app = self.start()
        await self.changes.get()
        assert await self.tools() == TOOLS, await self.tools()

    async def a_tool_is_called(self) -> None:
        result = await self.session.call_tool("add", {"a": 2, "b": 40})
        assert (result.isError, result.content[0].text, result.structuredContent) == (False, "42", {"result": 42}), result

    async def a_tool_that_fails_says_why(self) -> None:
        is_error, text = await self.call("fail")
        assert is_error and "the disk is full" in text, text

    async def wrong_arguments_are_told(self) -> None:
        is_error, text = await self.call("add", {"a": "two", "b": 40})
        assert is_error and "a" in text and "int" in text, text

    async def a_tool_that_is_none_is_told(self) -> None:
        is_error, text = await self.call("no_such_tool")
        assert is_error and "no_such_tool" in text, text

    async def progress_comes_in_order_and_before_the_answer(self) -> None:
        heard = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)

        said = await self.call("count", {"steps": 5}, progress_callback=hear)
        assert (said, heard) == ((False, "5 steps"), [1, 2, 3, 4, 5]), (said, heard)

    async def a_question_of_the_application_is_answered(self) -> None:
        assert await self.call("ask", {"question": "Which colour?"}) == (False, "accept: blue")

    async def a_resource_is_read(self) -> None:
        read = await self.session.read_resource("app://greeting")
        assert read.contents[0].text == "桟橋", read

    async def twenty_calls_at_once_are_kept_apart(self) -> None:
        calls = [self.call("add", {"a": number, "b": 1000}) for number in range(20)]
        assert await asyncio.gather(*calls) == [(False, str(number + 1000)) for number in range(20)]

    async def a_call_is_lost_with_it_and_its_outcome_unknown(self) -> None:
        lost = asyncio.ensure_future(self.session.call_tool("hang", {}))
        line = await asyncio.to_thread(self.app.stdout.readline)
        assert line == "hangs\n", line
        self.app.kill()
        result = await lost
        assert result.isError and result.meta["pontoon/outcome"] == "unknown", result

    async def it_comes_back_with_another_tool(self) -> None:
        self.app = self.start("newer")
        await self.changes.get()
        assert await self.tools() == [*TOOLS, "newer"], await self.tools()
        assert await self.call("newer") == (False, "new")

    async def it_is_restarted_in_order_and_a_call_waits_for_it(self) -> None:
        self.app.terminate()
        # Else the call could be on its way to the one that ended.
        while self.log.read_text().count("application gone") < 2:
            await asyncio.sleep(0.02)
        waits = asyncio.ensure_future(self.call("add", {"a": 1, "b": 1}))
        self.app = self.start("newer")
        assert await waits == (False, "2")


ORDER = [
    Checks.no_tools_while_it_is_away,
    Checks.its_tools_come_with_it,
    Checks.a_tool_is_called,
    Checks.a_tool_that_fails_says_why,
    Checks.wrong_arguments_are_told,
    Checks.a_tool_that_is_none_is_told,
    Checks.progress_comes_in_order_and_before_the_answer,
    Checks.a_question_of_the_application_is_answered,
    Checks.a_resource_is_read,
    Checks.twenty_calls_at_once_are_kept_apart,
    Checks.a_call_is_lost_with_it_and_its_outcome_unknown,
    Checks.it_comes_back_with_another_tool,
    Checks.it_is_restarted_in_order_and_a_call_waits_for_it,
]


async def check_all(pontoon: pathlib.Path, home: str) -> list[bool]:
    from mcp import ClientSession, StdioServerParameters, types
    from mcp.client.stdio import stdio_client
    from sketches import free_port

    port, changes, apps = free_port(), asyncio.Queue(), []

    def start(*more: str) -> subprocess.Popen:
        command = [sys.executable, HERE / "python" / "ws_app.py", str(port), *more]
        apps.append(subprocess.Popen(command, text=True, stdout=subprocess.PIPE))
        return apps[-1]

    async def hear(message) -> None:
        if isinstance(message, types.ServerNotification) and isinstance(message.root, types.ToolListChangedNotification):
            changes.put_nowait(message)

    async def elicit(context, params) -> types.ElicitResult:
        assert params.message == "Which colour?", params
        return types.ElicitResult(action="accept", content={"answer": "blue"})

    words = ["connect", f"ws://127.0.0.1:{port}", "--connect-wait", "60s"]
    server = StdioServerParameters(command=str(pontoon), args=words, env={"HOME": home})
    passed, log = [], pathlib.Path(home) / "bridge.log"
    try:
        async with stdio_client(server, errlog=log.open("w")) as (reader, writer):
            async with ClientSession(reader, writer, message_handler=hear, elicitation_callback=elicit) as session:
                await session.initialize()
                checks = Checks(session, changes, start, log)
                for check in ORDER:
                    name = check.__name__.replace("_", " ")
                    try:
                        async with asyncio.timeout(SECONDS):
                            await check(checks)
                    except Exception as error:  # The SDK's own too.
                        print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)
                        passed.append(False)
                    else:
                        print(f"ok   {name}", flush=True)
                        passed.append(True)
    finally:
        for app in apps:
            app.kill()
            app.wait()
    return passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    options = parser.parse_args()
    python = CACHE / INSTALL / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() != (CACHE / INSTALL).resolve():
        subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", INSTALL], check=True)
        os.execv(python, [python, *sys.argv])
    with tempfile.TemporaryDirectory(prefix="pontoon-sdk-app-") as home:
        passed = asyncio.run(check_all(options.pontoon, home))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if passed and all(passed) else 1)


if __name__ == "__main__":
    main()
