"""fastmcp 4: its own `Client` on top of the `mcp` 2 SDK.

It holds `server/discover` to the full 2026-07-28 schema: an answer without `resultType`, `ttlMs`
or `cacheScope` makes it fall back to `initialize`.
Eras: `modern` is the default mode `auto`, `pinned` opens with no probe at all, `legacy` initializes.
"""

from contextlib import asynccontextmanager

import checks
from fastmcp import Client

MODES = {"modern": "auto", "pinned": "2026-07-28", "legacy": "legacy"}


class Connection:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.protocol_version = client.protocol_version

    async def tool_names(self) -> list[str]:
        return [tool.name for tool in await self.client.list_tools()]

    async def call(self, tool: str, arguments: dict, on_progress: checks.OnProgress | None = None) -> str:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            if on_progress:
                on_progress(progress)

        result = await self.client.call_tool(tool, arguments, progress_handler=report)
        return "".join(block.text for block in result.content)

    async def cancel(self, tool: str, arguments: dict, after: float) -> None:
        await checks.cut_short(self.call(tool, arguments), after)


@asynccontextmanager
async def connect(url: str, era: str):
    async def elicit(message, response_type, params, context):
        return await checks.answer_blue(message)

    async with Client(url, mode=MODES[era], elicitation_handler=elicit) as client:
        yield Connection(client)


if __name__ == "__main__":
    checks.main(connect, ["modern", "pinned", "legacy"])
