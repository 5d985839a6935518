"""What a newcomer does first: `cargo run --release -- serve`, then three requests to the demo server.

The bridge must be there, and answer `initialize`, `tools/list` and `tools/call`, within a second of
being built. Ends with `N passed, N failed`.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUDGET_SECONDS = 1.0


def post(url: str, message: dict, session: str | None = None) -> tuple[dict, str | None]:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if session:
        headers["Mcp-Session-Id"] = session
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)
    with urllib.request.urlopen(request, timeout=5) as response:
        return json.load(response), response.headers.get("Mcp-Session-Id")


def talk(url: str) -> dict[str, bool]:
    def message(id: int, method: str, **params) -> dict:
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    info = {"name": "newcomer", "version": "1"}
    opened, session = post(
        url, message(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
    )
    listed, _ = post(url, message(2, "tools/list"), session)
    called, _ = post(url, message(3, "tools/call", name="greet", arguments={"name": "Ada"}), session)
    return {
        "initialize": opened["result"]["protocolVersion"] == "2025-11-25",
        "tools/list": any(tool["name"] == "greet" for tool in listed["result"]["tools"]),
        "tools/call": "Ada" in called["result"]["content"][0]["text"],
    }


def main() -> int:
    # Cargo must find nothing to build, so that only the start is measured.
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=REPOSITORY, check=True)
    with tempfile.TemporaryDirectory() as directory:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MCPO_")}
        bridge = subprocess.Popen(
            ["cargo", "run", "--release", "--quiet", "--", "serve", "--listen", "127.0.0.1:0"],
            cwd=REPOSITORY,
            env=environment | {"MCPO_STATE_DIR": directory, "MCPO_JOBS_DIR": directory + "/jobs"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            # The clock starts with the bridge's first word: before that, cargo looks at the sources.
            first = bridge.stderr.readline()
            started = time.monotonic()
            url = "http://" + first.rsplit("http://", 1)[1].strip() + "/mcp/demo"
            checks = talk(url)
            took = time.monotonic() - started
            checks[f"answered after {took * 1000:.0f} ms"] = took < BUDGET_SECONDS
        finally:
            os.killpg(bridge.pid, signal.SIGTERM)
            code = bridge.wait(20)
        checks["ended in order"] = code in (0, -signal.SIGTERM)
    for name, is_well in checks.items():
        print(f"{'ok  ' if is_well else 'FAIL'} {name}")
    failed = sum(not is_well for is_well in checks.values())
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
