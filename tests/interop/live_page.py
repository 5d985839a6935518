#!/usr/bin/env python3
"""Web pages in real Chromium that try to use the application of `examples/live-app`.

    tests/interop/live_page.py --live-app target/release/live-app

A page of an origin that the application allows and that has the token may; every other may not: another origin, no token,
a wrong one, or a name that suddenly means this machine. The browser is PONTOON_CHROMIUM, or the `chromium` in PATH.
Ends with `N passed, N failed`.
"""

import argparse
import functools
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

from browser import CACHE, Pages, chromium
from people import REPOSITORY

HERE = pathlib.Path(__file__).resolve().parent
INSTALLS = ["node22", "playwright"]
TOKEN = "the-token-of-the-example"


def site(directory: str) -> str:
    """The origin of a web server with one page."""
    (pathlib.Path(directory) / "index.html").write_text("<!doctype html><title>A page</title>")
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Pages, directory=directory))
    threading.Thread(target=web.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{web.server_port}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live-app", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    options = parser.parse_args()
    subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *INSTALLS], check=True)
    with tempfile.TemporaryDirectory(prefix="pontoon-page-") as directory:
        allowed, foreign = site(directory), site(directory)
        command = [options.live_app, "--port", "0", "--origin", allowed]
        variables = {"HOME": directory, "LIVE_APP_TOKEN": TOKEN}
        with subprocess.Popen(command, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as app:
            try:
                passed = check_all(app.stdout.readline().split()[-1], allowed, foreign)
            finally:
                app.communicate("close\n", timeout=30)
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if passed and all(passed) else 1)


def check_all(url: str, allowed: str, foreign: str) -> list[bool]:
    right = ["mcp", f"bearer.{TOKEN}"]
    works = {
        "opened": True,
        "origin": allowed,
        "protocol": "mcp",
        "version": "2025-06-18",
        "tools": 11,
        "patches": {"count": 1, "patches": ["demo"]},
    }
    refused = {"opened": False}
    rebound = foreign.replace("127.0.0.1", "evil.example")
    cases = [
        ("a page of an allowed origin with the token works", allowed, url, right, works),
        ("a page of a foreign origin is refused though it has the token", foreign, url, right, refused),
        ("a page of an allowed origin without the token is refused", allowed, url, ["mcp"], refused),
        ("a page of an allowed origin with a wrong token is refused", allowed, url, ["mcp", "bearer.wrong"], refused),
        ("a page of a name that means this machine is refused", rebound, url, right, refused),
        ("such a name is refused also as the address of the application", allowed, url.replace("127.0.0.1", "evil.example"), right, refused),
        ("and it still works", allowed, url, right, works),
    ]
    node = (CACHE / "node22" / "bin" / "node").resolve(strict=True)
    words = [json.dumps({"page": page + "/index.html", "url": where, "protocols": protocols}) for _, page, where, protocols, _ in cases]
    command = [node, HERE / "live_page.mjs", (CACHE / "playwright").resolve(), chromium(), *words]
    run = subprocess.run(command, text=True, stdout=subprocess.PIPE, timeout=300, env=dict(os.environ))
    heard = [json.loads(line) for line in run.stdout.splitlines()]
    passed = [run.returncode == 0]
    for number, (name, *_, expected) in enumerate(cases):
        got = heard[number] if number < len(heard) else "nothing"
        passed.append(got == expected)
        print(f"ok   {name}" if passed[-1] else f"FAIL {name}: {got}", flush=True)
    return passed


if __name__ == "__main__":
    main()
