#!/usr/bin/env python3
"""The pages of a real `pontoon serve` in real Chromium: the one that says what is served, that of each server, and those that show
the tools.

    tests/interop/docs_page.py --pontoon target/release/pontoon [--pictures FOLDER]

The browser reaches nothing but this machine. Links lead somewhere, a tool is tried out by a click and its answer is seen, with and
without an API key, by mouse and by keyboard; no page asks anywhere but the bridge, and the browser complains of nothing. The
pages are photographed, light and dark, wide and narrow, into FOLDER, to be looked at. The browser is PONTOON_CHROMIUM, or the
`chromium` in PATH. Ends with `N passed, N failed`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from browser import CACHE, chromium
from live_page import HERE, INSTALLS
from people import API_KEY, REPOSITORY

# Two servers, so that there are pages of one and of all.
SERVERS = {"mcpServers": {name: {"command": "", "args": ["demo"]} for name in ["demo", "other"]}}
TOOLS = ["/greet", "/make_report", "/count", "/slow_echo", "/ask_name", "/roll_dice"]
ADA = {"path": "/greet", "body": {"name": "Ada"}}
# As the page shows it.
REFUSED = '{\n  "detail": "Missing or invalid Authorization header"\n}'


@contextlib.contextmanager
def bridge(pontoon: pathlib.Path, directory: pathlib.Path, **settings: str):
    """The address of a bridge with these settings."""
    directory.mkdir()
    for server in SERVERS["mcpServers"].values():
        server["command"] = str(pontoon)
    (directory / "servers.json").write_text(json.dumps(SERVERS))
    variables = {"PATH": os.environ["PATH"], "HOME": str(directory), "MCPO_JOBS_DIR": str(directory / "jobs"), **settings}
    command = [pontoon, "serve", "--listen", "127.0.0.1:0", "--config", directory / "servers.json"]
    with subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            said = next(line for line in process.stdout if "listening on http://" in line)
            # It may say much, and waits for no reader.
            with subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL):
                yield said.split("listening on ")[1].split()[0]
                process.terminate()
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--pictures", type=pathlib.Path)
    options = parser.parse_args()
    subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *INSTALLS], check=True)
    with tempfile.TemporaryDirectory(prefix="pontoon-docs-") as folder:
        directory = pathlib.Path(folder)
        pictures = options.pictures or directory / "pictures"
        pictures.mkdir(exist_ok=True)
        with (
            bridge(options.pontoon, directory / "open") as url,
            bridge(options.pontoon, directory / "keyed", MCPO_API_KEY=API_KEY) as keyed,
            bridge(options.pontoon, directory / "strict", MCPO_API_KEY=API_KEY, MCPO_STRICT_AUTH="true") as strict,
        ):
            passed = check_all(pages(url, keyed, strict) + photographs(url, pictures))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if passed and all(passed) else 1)


def pages(url: str, keyed: str, strict: str) -> list[tuple[str, dict, dict]]:
    hello = [200, '"Hello, Ada!"']
    report = {"path": "/make_report", "body": {"title": "Sales", "lines": ["one", "two"], "format": "md"}}
    links = {
        "./mcp/demo": ["/mcp/demo", 200, "demo - Pontoon"],
        "./mcp/other": ["/mcp/other", 200, "other - Pontoon"],
        "./mcpo/demo/docs": ["/mcpo/demo/docs", 200, "demo - tools"],
        "./mcpo/other/docs": ["/mcpo/other/docs", 200, "other - tools"],
        "./health": ["/health", 200, ""],
        "./mcpo/docs": ["/mcpo/docs", 200, "Pontoon - tools"],
        "./mcpo/openapi.json": ["/mcpo/openapi.json", 200, ""],
    }
    both = [f"/{server}{tool}" for server in SERVERS["mcpServers"] for tool in TOOLS]

    def shows(name: str, path: str, title: str, tools: list[str]) -> tuple[str, dict, dict]:
        case = {"do": "listed", "url": url + path, "count": len(tools)}
        return name, case, {"title": f"{title} - tools", "operations": tools}

    own = {
        "../": ["/", 200, "Pontoon"],
        "../mcpo/demo/docs": ["/mcpo/demo/docs", 200, "demo - tools"],
        "../mcpo/demo/openapi.json": ["/mcpo/demo/openapi.json", 200, ""],
    }

    def pasted(address: str, key: str) -> dict:
        """What is copied from the page of the demo server, by what it is for."""
        header = f' --header "Authorization: Bearer {key}"' if key else ""
        return {"address": f"{address}/mcp/demo", "claude": f"claude mcp add --transport http demo {address}/mcp/demo{header}"}

    clients = ["Claude Code", "Open WebUI", "VS Code", "Cursor", "Claude Desktop", "Python"]
    sample = {"name": "Sample.md", "file": "# Sample\n\n- made by a tool\n- fetched by a link\n"}
    names = [tool[1:] for tool in TOOLS]

    refused = ["Failed to load resource: the server responded with a status of 401 (Unauthorized)"]
    return [
        ("the links of the first page lead somewhere", {"do": "links", "url": url + "/"}, {"title": "Pontoon", "links": links}),
        shows("the page of a server shows its tools", "/mcpo/demo/docs", "demo", TOOLS),
        shows("so it does with a slash at its end", "/mcpo/demo/docs/", "demo", TOOLS),
        shows("so it does at mcpo's own address", "/demo/docs", "demo", TOOLS),
        shows("the page of all servers shows all tools", "/mcpo/docs", "Pontoon", both),
        ("a tool is tried out by a click", {"do": "execute", "url": url + "/mcpo/demo/docs", "times": 2, **ADA}, {"answers": [hello, hello]}),
        ("also at mcpo's own address, with a slash", {"do": "execute", "url": url + "/demo/docs/", **ADA}, {"answers": [hello]}),
        ("also on the page of all servers", {"do": "execute", "url": url + "/mcpo/docs", **ADA, "path": "/other/greet"}, {"answers": [hello]}),
        (
            "the answer of a tool that makes a file has its link",
            {"do": "execute", "url": url + "/mcpo/demo/docs", "file": True, **report},
            {"answers": [200], "name": "Sales.md", "file": "# Sales\n\n- one\n- two\n"},
        ),
        (
            "where a key is needed, a tool works with it and not without",
            {"do": "authorize", "url": keyed + "/mcpo/demo/docs", "key": API_KEY, **ADA},
            {"answers": [[401, REFUSED], hello], "complaints": refused},
        ),
        (
            "where it is needed for pages, too, the browser asks for it, and a tool wants it once more",
            {"do": "authorize", "url": strict + "/mcpo/demo/docs", "key": API_KEY, "password": API_KEY, **ADA},
            {"answers": [[401, REFUSED], hello], "complaints": refused},
        ),
        (
            "the keyboard reaches the first tool, opens it and tries it out, and the focus is seen all the way",
            {"do": "keyboard", "url": url + "/mcpo/demo/docs", **ADA},
            {"soon": True, "unseen": [], "answer": hello},
        ),
        ("the links of a server's page lead somewhere", {"do": "links", "url": url + "/mcp/demo"}, {"title": "demo - Pontoon", "links": own}),
        (
            "a server's page has its tools, what each client needs, and a file that is fetched",
            {"do": "server", "url": url + "/mcp/demo"},
            {"tools": names, "clients": clients, "copied": pasted(url, ""), "marks": 0, **sample},
        ),
        (
            "where a key is needed, its place is marked, and a file is made with it",
            {"do": "server", "url": keyed + "/mcp/demo", "key": API_KEY},
            {"tools": names, "clients": clients, "copied": pasted(keyed, "KEY"), "marks": 7, **sample},
        ),
        (
            "where it is needed for pages, too, the browser asks for it before it shows one",
            {"do": "server", "url": strict + "/mcp/demo", "key": API_KEY, "password": API_KEY},
            {"tools": names, "clients": clients, "copied": pasted(strict, "KEY"), "marks": 7, **sample},
        ),
        (
            "a wrong key is told, and nothing is made",
            {"do": "refused", "url": keyed + "/mcp/demo", "key": "another key"},
            {"said": "It was not made: Invalid API key", "complaints": [refused[0].replace("401 (Unauthorized)", "403 (Forbidden)")]},
        ),
        (
            "without a clipboard the text is selected and copied",
            {"do": "server", "url": url + "/mcp/demo", "clipboard": False},
            {"copied": pasted(url, ""), **sample},
        ),
        (
            "the keyboard copies the address, opens a client and makes a file, and the focus is seen all the way",
            {"do": "walk", "url": url + "/mcp/demo"},
            {"copied": f"{url}/mcp/demo", "opened": True, "unseen": [], "name": "Sample.md"},
        ),
    ]


def photographs(url: str, folder: pathlib.Path) -> list[tuple[str, dict, dict]]:
    cases = []
    for path, name, what in [
        ("/", "first", {"shows": "main"}),
        ("/mcp/demo", "server", {"shows": "main", "opens": True}),
        ("/mcpo/demo/docs", "docs", {"shows": ".opblock"}),
        ("/mcpo/demo/docs", "tried", {"shows": ".opblock", **ADA}),
    ]:
        for colours in ["light", "dark"]:
            # Swagger UI needs a little more than the narrowest of windows.
            for width in [400 if path.endswith("docs") else 320, 1200]:
                picture = str(folder / f"{name}-{colours}-{width}.png")
                options = {"viewport": {"width": width, "height": 800}, "colorScheme": colours}
                case = {"do": "photograph", "url": url + path, "picture": picture, "options": options, **what}
                cases.append((f"{name}, {colours}, {width} wide, fits its window", case, {"tooWide": 0}))
    return cases


def check_all(cases: list[tuple[str, dict, dict]]) -> list[bool]:
    node = (CACHE / "node22" / "bin" / "node").resolve(strict=True)
    command = [node, HERE / "docs_page.mjs", (CACHE / "playwright").resolve(), chromium(), *(json.dumps(what) for _, what, _ in cases)]
    run = subprocess.run(command, text=True, stdout=subprocess.PIPE, timeout=300, env=dict(os.environ))
    heard = [json.loads(line) for line in run.stdout.splitlines()]
    passed = [run.returncode == 0]
    for number, (name, what, expected) in enumerate(cases):
        got = heard[number] if number < len(heard) else {}
        own = what["url"].split("/", 3)
        expected = {"asked": ["/".join(own[:3])], "complaints": [], **expected}
        differs = {key: got.get(key, "nothing") for key in expected if got.get(key) != expected[key]}
        passed.append(not differs)
        print(f"ok   {name}" if passed[-1] else f"FAIL {name}: {differs}, of {got}", flush=True)
    return passed


if __name__ == "__main__":
    main()
