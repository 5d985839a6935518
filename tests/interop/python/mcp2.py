"""The `mcp` 2 SDK: `Client`, which probes with `server/discover` unless told otherwise.

Eras: `modern` is the default mode `auto`, `pinned` opens with no probe at all, `legacy` initializes.
"""

from contextlib import asynccontextmanager

import checks
import mcp_types
from mcp import Client

MODES = {"modern": "auto", "pinned": "2026-07-28", "legacy": "legacy"}


class Connection:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.protocol_version = client.protocol_version

    async def tool_names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, tool: str, arguments: dict, on_progress: checks.OnProgress | None = None) -> str:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            on_progress(progress)

        result = await self.client.call_tool(tool, arguments, progress_callback=report if on_progress else None)
        text = "".join(block.text for block in result.content)
        assert not result.is_error, f"{tool} failed: {text}"
        return text

    async def cancel(self, tool: str, arguments: dict, after: float) -> None:
        # Legacy: the SDK posts `notifications/cancelled`. Modern: it closes the response stream.
        await checks.cut_short(self.call(tool, arguments), after)


@asynccontextmanager
async def connect(url: str, era: str):
    async def elicit(context, params):
        return mcp_types.ElicitResult(action="accept", content=await checks.answer_blue(params.message))

    async with Client(url, mode=MODES[era], elicitation_callback=elicit) as client:
        yield Connection(client)


if __name__ == "__main__":
    checks.main(connect, ["modern", "pinned", "legacy"])
