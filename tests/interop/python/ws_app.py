"""An application on the WebSocket transport of the `mcp` 1 SDK: a server of that SDK behind uvicorn.

    ws_app.py PORT [MORE]        with a tool of the name MORE, too
"""

import asyncio
import sys
import warnings

import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

# The SDK says at each connection that its next version has no WebSocket.
warnings.simplefilter("ignore", DeprecationWarning)

from mcp.server.websocket import websocket_server  # noqa: E402

app = FastMCP("sdk-app", log_level="WARNING")


class Answer(BaseModel):
    answer: str


@app.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@app.tool()
def fail() -> str:
    raise RuntimeError("the disk is full")


@app.tool()
async def count(steps: int, context: Context) -> str:
    for step in range(steps):
        await context.report_progress(step + 1, steps)
    return f"{steps} steps"


@app.tool()
async def ask(question: str, context: Context) -> str:
    asked = await context.elicit(question, Answer)
    return f"{asked.action}: {asked.data.answer}"


@app.tool()
async def hang() -> None:
    print("hangs", flush=True)
    await asyncio.Event().wait()


@app.resource("app://greeting")
def greeting() -> str:
    return "桟橋"


async def serve(scope, receive, send) -> None:
    if scope["type"] != "websocket":
        raise RuntimeError("this is for WebSockets")
    async with websocket_server(scope, receive, send) as (reader, writer):
        server = app._mcp_server
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    for name in sys.argv[2:]:
        app.add_tool(lambda: "new", name=name)
    uvicorn.run(serve, host="127.0.0.1", port=int(sys.argv[1]), lifespan="off", log_level="warning")
