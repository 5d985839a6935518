"""A client with a folder, before the filesystem server, which asks its client for the folders.

    roots.py URL [--era modern|legacy]

Run by the Python of `py-mcp1` or `py-mcp2`: it uses the SDK that is there.
"""

import argparse
import asyncio
import pathlib
import sys
import tempfile
from contextlib import asynccontextmanager
from importlib.metadata import version

import checks

IS_NEW = not version("mcp").startswith("1.")
MODES = {"modern": "auto", "legacy": "legacy"}


@asynccontextmanager
async def connect(url: str, era: str, folder: pathlib.Path):
    """A function that calls a tool and gives its text, or what the tool complains of."""
    if IS_NEW:
        import mcp_types as types
        from mcp import Client

        async def roots(context) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=folder.as_uri())])

        async with Client(url, mode=MODES[era], list_roots_callback=roots) as client:
            yield lambda tool, arguments: client.call_tool(tool, arguments)
        return
    from mcp import ClientSession, types
    from mcp.client.streamable_http import streamable_http_client

    async def roots(context) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=folder.as_uri())])

    async with streamable_http_client(url) as (reader, writer, _session_id):
        async with ClientSession(reader, writer, list_roots_callback=roots) as session:
            await session.initialize()
            yield lambda tool, arguments: session.call_tool(tool, arguments)


async def run(url: str, era: str, folder: pathlib.Path) -> checks.Report:
    report = checks.Report()

    async def folder_arrives(call) -> None:
        text = ""
        # The server looks at the folders while it serves, so the first call may come too soon.
        for _ in range(20):
            result = await call("list_allowed_directories", {})
            text = "".join(block.text for block in result.content)
            if str(folder) in text:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"no {folder} in {text!r}")

    async def file_is_read(call) -> None:
        result = await call("read_text_file", {"path": str(folder / "note.txt")})
        text = "".join(block.text for block in result.content)
        assert "from my folder" in text, repr(text)

    async with connect(url, era, folder) as call:
        await report.check("the folder arrives", folder_arrives(call))
        await report.check("a file in it is read", file_is_read(call))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="Lends a folder to the filesystem server.")
    parser.add_argument("url")
    parser.add_argument("--era", choices=MODES, default="legacy")
    parser.add_argument("--server-note", default="", help="printed, to tell runs apart")
    options = parser.parse_args()
    print(f"# {options.url} {options.era} {options.server_note}".rstrip(), flush=True)
    with tempfile.TemporaryDirectory(prefix="pontoon-roots-") as directory:
        folder = pathlib.Path(directory).resolve()
        (folder / "note.txt").write_text("from my folder")
        report = asyncio.run(run(options.url, options.era, folder))
    print(f"{report.passed} passed, {report.failed} failed", flush=True)
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
