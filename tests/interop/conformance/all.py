"""Runs the conformance suite in every set-up: each mode and era of the fixture server, each revision.

`all.py --pontoon BRIDGE --fixture FIXTURE_SERVER` starts one bridge for all of them and ends with
`N passed, N failed`, counting set-ups: one passes if nothing failed in it that its file of
expectations does not explain.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
REVISIONS = ["2025-11-25", "2026-07-28"]
# The name of a set-up is also the name of its file of expectations.
SETUPS = {
    "both": {"args": ["--era", "both"], "mode": "stateful"},
    "legacy": {"args": ["--era", "legacy"], "mode": "stateful"},
    "modern": {"args": ["--era", "modern"], "mode": "stateful"},
    "stateless": {"args": ["--era", "both"], "mode": "stateless"},
}


def run_suite(address: str, setup: str, revision: str) -> tuple[bool, str]:
    command = [
        sys.executable, HERE / "run.py",
        "--url", f"{address}/mcp/{setup}",
        "--node", CACHE / "node22/bin/node",
        "--suite", CACHE / "conformance",
        "--requirements", revision,
        "--expected", HERE / f"expected-{setup}.toml",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n")
    return done.returncode == 0, lines[-1] if lines else "no output"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pontoon", required=True, type=pathlib.Path)
    parser.add_argument("--fixture", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    fixture = str(arguments.fixture.resolve())
    with tempfile.TemporaryDirectory() as directory:
        config = pathlib.Path(directory) / "servers.json"
        # The suite wants tools as their server wrote them, alternatives at the root included.
        servers = {n: {"command": fixture, "profile": "none", **s} for n, s in SETUPS.items()}
        config.write_text(json.dumps({"mcpServers": servers}))
        bridge = subprocess.Popen(
            [arguments.pontoon.resolve(), "serve", "--config", config, "--listen", "127.0.0.1:0"],
            env=os.environ | {"MCPO_STATE_DIR": directory, "MCPO_JOBS_DIR": f"{directory}/jobs", "MCPO_LOG_LEVEL": "error"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            address = re.search(r"http://\S+", bridge.stderr.readline())[0]
            passed = failed = 0
            for setup in SETUPS:
                for revision in REVISIONS:
                    is_well, summary = run_suite(address, setup, revision)
                    print(f"{'ok  ' if is_well else 'FAIL'} {setup:10} {revision}  {summary}", flush=True)
                    passed, failed = passed + is_well, failed + (not is_well)
        finally:
            bridge.send_signal(signal.SIGTERM)
            bridge.wait(60)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
