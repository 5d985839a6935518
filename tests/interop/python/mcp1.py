"""The `mcp` 1 SDK, which knows the legacy era only."""

from contextlib import asynccontextmanager
from datetime import timedelta

import checks
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client


class Connection:
    def __init__(self, session: ClientSession, protocol_version: str) -> None:
        self.session = session
        self.protocol_version = protocol_version

    async def tool_names(self) -> list[str]:
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(
        self,
        tool: str,
        arguments: dict,
        on_progress: checks.OnProgress | None = None,
        timeout: timedelta | None = None,
    ) -> str:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            on_progress(progress)

        result = await self.session.call_tool(
            tool, arguments, read_timeout_seconds=timeout, progress_callback=report if on_progress else None
        )
        text = "".join(block.text for block in result.content)
        assert not result.isError, f"{tool} failed: {text}"
        return text

    async def cancel(self, tool: str, arguments: dict, after: float) -> None:
        # This SDK only stops waiting: it neither says so nor closes the stream. A caller who wants
        # the server to stop posts the notification itself, with the id the SDK is about to use.
        request_id = self.session._request_id
        try:
            await self.call(tool, arguments, timeout=timedelta(seconds=after))
        except McpError as error:
            assert "Timed out" in str(error), f"not the timeout: {error}"
        else:
            raise AssertionError("ended before its timeout")
        params = types.CancelledNotificationParams(requestId=request_id, reason="timed out")
        await self.session.send_notification(
            types.ClientNotification(types.CancelledNotification(method="notifications/cancelled", params=params))
        )


@asynccontextmanager
async def connect(url: str, era: str):
    async def elicit(context, params):
        return types.ElicitResult(action="accept", content=await checks.answer_blue(params.message))

    async with streamable_http_client(url) as (reader, writer, _session_id):
        async with ClientSession(reader, writer, elicitation_callback=elicit) as session:
            opened = await session.initialize()
            yield Connection(session, opened.protocolVersion)


if __name__ == "__main__":
    checks.main(connect, ["legacy"])
