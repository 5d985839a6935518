"""One call of a server from the wild, by the `mcp` 2 SDK.

    real_server.py URL --tool NAME --arguments JSON --contains TEXT [--era modern|legacy]

`modern` is the mode `auto`: a bridge may serve it in either era, since most real servers are legacy
only, but the probe must not cost the connection.
"""

import argparse
import asyncio
import json
import sys

import checks
from mcp import Client

MODES = {"modern": "auto", "legacy": "legacy"}


async def run(options: argparse.Namespace) -> checks.Report:
    report = checks.Report()
    client = Client(options.url, mode=MODES[options.era])

    async def lists_tools() -> None:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert options.tool in names, f"no {options.tool} in {names}"

    async def calls() -> None:
        result = await client.call_tool(options.tool, json.loads(options.arguments))
        text = "".join(block.text for block in result.content)
        assert options.contains in text and not result.is_error, f"{text!r}"

    # An interpreter that starts cold may take its time, yet less than the SDK waits for its probe.
    if await report.check("connect", client.__aenter__()):
        await report.check("list tools", lists_tools())
        await report.check("call", calls())
        await report.check("close", client.__aexit__(None, None, None))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="Lists the tools of one endpoint and calls one.")
    parser.add_argument("url")
    parser.add_argument("--tool", required=True)
    parser.add_argument("--arguments", default="{}")
    parser.add_argument("--contains", required=True, help="what the answer must contain")
    parser.add_argument("--era", choices=MODES, default="modern")
    parser.add_argument("--server-note", default="", help="printed, to tell runs apart")
    options = parser.parse_args()
    print(f"# {options.url} {options.era} {options.server_note}".rstrip(), flush=True)
    report = asyncio.run(run(options))
    print(f"{report.passed} passed, {report.failed} failed", flush=True)
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
