#!/usr/bin/env python3
"""`pontoon mcpo` and mcpo started by the same command lines, in what a comparison of answers does not show.

    tests/interop/mcpo/command_line.py --pontoon target/debug/pontoon

Where servers work, what they see of the environment and how many processes they have, by default; where both listen; TLS; changes of the
configuration while they run; servers that are remote or whose names are no words of a path; and mistakes. What mcpo does is looked at as well
where Pontoon has to do the same. Ends with `N passed, N failed`.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bridges  # noqa: E402
from bridges import Client  # noqa: E402
from open_webui import Report  # noqa: E402

CHANGE_SECONDS = 15
KEY = "an-api-key-of-these-tests"
ADA, BEN = ({"X-OpenWebUI-User-Id": f"id-of-{name}", "X-OpenWebUI-Chat-Id": f"chat-of-{name}"} for name in ("ada", "ben"))


def server(*words: str, **more: object) -> dict:
    """As in a configuration that was written for mcpo."""
    return {"command": sys.executable, "args": ["-IS", str(bridges.CASES), *words], **more}


# A file of variables with all that such files have.
VARIABLES = r"""SAID_TWICE=file
SAID_MORE='a b' # no variable
export SAID_THRICE="file"
  SAID_SPACED = x y # z
SAID_HASH=a#b
SAID_EMPTY=
SAID_LINES="one
two\tthree\d"
SAID_SINGLE='it\'s \t'
SAID_FILLED=${SAID_SPACED}/${SAID_OUTSIDE}/${SAID_GONE:-else}/${SAID_GONE}/$SAID_HASH
SAID_QUOTED='${SAID_HASH}'
SAID_HASH=again
'SAID_NAME'=quoted
SAID_BARE
SAID_WRONG='x' y
SAID_OPEN="x
"""
OF_VARIABLES = 8


class Both:
    """mcpo and `pontoon mcpo`, one after the other."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path) -> None:
        self.program, self.folder = program, folder

    def folder_of(self, kind: str, name: str) -> pathlib.Path:
        folder = self.folder / f"{name}-{kind}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def start(self, kind: str, name: str, *options, **settings):
        folder = self.folder_of(kind, name)
        if kind == "mcpo":
            return bridges.mcpo(folder, *options, **settings)
        return bridges.pontoon_mcpo(self.program, folder, *options, **settings)

    def command(self, kind: str) -> list:
        return [bridges.CACHE / "mcpo/bin/mcpo"] if kind == "mcpo" else [self.program, "mcpo"]


def asked(url: str, path: str, body: object = None, headers: dict | None = None, trust: str | None = None) -> tuple[int, object]:
    own = {"Content-Type": "application/json"} | (headers or {})
    method, data = ("GET", None) if body is None else ("POST", json.dumps(body).encode())
    with Client(url, timeout=20, trust=trust) as client, client.send(method, urllib.parse.quote(path), data, own) as response:
        text = response.read().decode()
        return response.status, json.loads(text) if response.headers.get_content_type() == "application/json" else text


def document_of(url: str, name: str) -> list[str]:
    """The paths of the tools of a server, or none if there is no document."""
    status, body = asked(url, f"/{name}/openapi.json")
    return list(body["paths"]) if status == 200 and isinstance(body, dict) else []


def defaults(both: Both, report: Report) -> None:
    """Its folder, one process for all, and all addresses of this machine."""
    for kind in ["mcpo", "pontoon"]:
        folder = both.folder_of(kind, "defaults")
        config = bridges.with_config(folder, {"telling": server("telling")})
        with both.start(kind, "defaults", *config, host=None) as url:
            told = [asked(url, "/telling/tells", {}, headers)[1] for headers in [{}, {}, {"User-Agent": "another"}]]
            try:
                elsewhere = asked(f"http://127.0.0.2:{urllib.parse.urlsplit(url).port}", "/openapi.json")[0]
            except OSError as error:
                elsewhere = str(error)
        processes = [it["process"] for it in told]
        report.check(f"{kind}: a server works where it was started", [] if told[0]["folder"] == str(folder) else [told[0]["folder"]])
        report.check(f"{kind}: it listens on all addresses", [] if elsewhere == 200 else [str(elsewhere)])
        report.check(f"{kind}: one process for all who say not who they are", [] if len(set(processes)) == 1 else [str(processes)])


def people(both: Both, report: Report) -> None:
    """Who says who it is has a process of its own: where there is a key, with it; without one, all are believed. With mcpo nobody has."""
    for name, words, key in [("key", ["--api-key", KEY], {"Authorization": f"Bearer {KEY}"}), ("no-key", [], {})]:
        config = bridges.with_config(both.folder_of("pontoon", name), {"telling": server("telling")})
        with both.start("pontoon", name, *config, *words) as url:
            told = [asked(url, "/telling/tells", {}, person | key)[1]["process"] for person in [ADA, BEN, ADA, {}, {}]]
        ada, ben, again, nobody, still = told
        is_so = len({ada, ben, nobody}) == 3 and (ada, nobody) == (again, still)
        report.check(f"pontoon, {name}: a process for each who says who it is, and one for all others", [] if is_so else [str(told)])


def paths(both: Both, report: Report) -> None:
    """A configuration that lies elsewhere names programs from where the bridge was started."""
    for kind in ["mcpo", "pontoon"]:
        folder = both.folder_of(kind, "paths")
        program = folder / "run.sh"
        program.write_text(f"#!/bin/sh\nexec {sys.executable} -IS {bridges.CASES} telling\n")
        program.chmod(0o755)
        bridges.with_config(folder / "conf", {"telling": {"command": "./run.sh"}})
        with both.start(kind, "paths", "--config", "conf/servers.json") as url:
            status, told = asked(url, "/telling/tells", {})
            is_so = status == 200 and told["folder"] == str(folder)
            report.check(f"{kind}: programs are found from where it was started", [] if is_so else [f"{status} {told}"])


def at_once(both: Both, report: Report) -> None:
    """As many calls of one server at a time as come: this one answers none before all are there."""
    count = 100
    for kind in ["mcpo", "pontoon"]:
        config = bridges.with_config(both.folder_of(kind, "at-once"), {"gathers": server("gathers", str(count))})
        with both.start(kind, "at-once", *config) as url, concurrent.futures.ThreadPoolExecutor(count) as clients:
            told = list(clients.map(lambda it: asked(url, "/gathers/gathers", {"it": str(it)}), range(count)))
            wrong = [f"{it}: {answer}" for it, answer in enumerate(told) if answer != (200, {"it": str(it)})]
            report.check(f"{kind}: {count} calls at once, each with its answer", wrong[:3])


def loose(both: Both, report: Report) -> None:
    """What mcpo starts with, though it makes no sense."""
    entries = {
        "plain": server("plain"),
        "nothing": server("plain", cwd=None, headers=None),
        "headed": server("plain", headers={"A": "b"}),
        "typed": server("plain", env={"PORT": 8080}),
    }
    for kind in ["mcpo", "pontoon"]:
        config, log = bridges.with_config(both.folder_of(kind, "loose"), entries), []
        # mcpo waits for long for a server that does not start, so only the other has that.
        if kind == "mcpo":
            config = bridges.with_config(both.folder_of(kind, "loose"), {name: entries[name] for name in ["plain", "nothing", "headed"]})
        with both.start(kind, "loose", *config, "--strict-auth", log=log) as url:
            for name in ["plain", "nothing", "headed"]:
                told = asked(url, f"/{name}/plain", {"it": "a"})
                report.check(f"{kind}: {name} works", [] if told == (200, {"it": "a"}) else [str(told)])
        if kind == "pontoon":
            said = {it: [line for line in log if it in line] for it in ["mcpServers.typed", "--strict-auth"]}
            wrong = [f"{it}: {lines}" for it, lines in said.items() if len(lines) != 1]
            report.check("pontoon: a line about each of these", wrong)


def variables(both: Both, report: Report) -> None:
    """The whole environment, what options and files add to it, and what the configuration sets over all of that. With both options mcpo
    lets what was there before win over `--env`; Pontoon does not."""
    outside = {"SAID_OUTSIDE": "outside", "SAID_TWICE": "outside", "SAID_THRICE": "outside"}
    options = {
        "--env": ["--env", "SAID_TWICE=option", "--env", "SAID_THRICE=option", "-e", "SAID_MORE=a=b"],
        "--env-path": ["--env-path", "more.env"],
    }
    for name, words in options.items():
        found = {}
        for kind in ["mcpo", "pontoon"]:
            folder = both.folder_of(kind, f"variables{name}")
            (folder / "more.env").write_text(VARIABLES)
            config = bridges.with_config(folder, {"telling": server("telling", env={"SAID_THRICE": "config", "SAID_IN_CONFIG": "config"})})
            with both.start(kind, folder.name.rpartition("-")[0], *config, *words, variables=outside) as url:
                told = asked(url, "/telling/tells", {})[1]["variables"]
            # What mcpo's SDK and Python add on their own is no concern of a server.
            found[kind] = {name: value for name, value in told.items() if name.startswith("SAID_")}
        wrong = [] if found["mcpo"] == found["pontoon"] else [f"with mcpo {found['mcpo']}, with Pontoon {found['pontoon']}"]
        count = {"--env": 5, "--env-path": 5 + OF_VARIABLES}[name]
        wrong += [] if len(found["mcpo"]) == count else [f"this test sees nothing: {found['mcpo']}"]
        report.check(f"the same environment with {name}", wrong)


def certificate(folder: pathlib.Path, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "new.key", "-out", folder / "new.pem"]
    subprocess.run(command, check=True, capture_output=True)
    # Both are there at once for who looks at them.
    os.replace(folder / "new.key", key)
    os.replace(folder / "new.pem", certificate)
    return certificate, key


def name_shown(url: str) -> str:
    """The name in the certificate that is shown, whoever vouches for it."""
    parts = urllib.parse.urlsplit(url)
    pem = ssl.get_server_certificate((parts.hostname, parts.port), timeout=10)
    said = subprocess.run(["openssl", "x509", "-noout", "-subject"], input=pem, capture_output=True, text=True, check=True).stdout
    return said.strip().rpartition("=")[2].strip()


def tls(both: Both, report: Report) -> None:
    answers = {}
    for kind in ["mcpo", "pontoon"]:
        folder = both.folder_of(kind, "tls")
        pem, key = certificate(folder, "first")
        config = bridges.with_config(folder, {"plain": server("plain")})
        with both.start(kind, "tls", *config, "--ssl-certfile", pem, "--ssl-keyfile", key) as url:
            trust = str(pem)
            answers[kind] = [
                asked(url, "/openapi.json", trust=trust),
                asked(url, "/plain/openapi.json", trust=trust),
                asked(url, "/plain/plain", {"it": "桟橋"}, trust=trust),
                asked(url, "/plain/plain", {}, trust=trust),
            ]
            report.check(f"{kind}: shows its certificate", [] if name_shown(url) == "first" else [name_shown(url)])
            try:
                plain = asked(url.replace("https", "http"), "/openapi.json")[0]
            except OSError as error:
                plain = str(error)
            report.check(f"{kind}: nothing without TLS", [f"it is answered with {plain}"] if plain == 200 else [])
            with contextlib.suppress(ssl.SSLError):
                asked(url, "/openapi.json")
                report.check(f"{kind}: is believed by nobody who does not know the certificate", ["it is"])
            if kind == "pontoon":
                certificate(folder, "second")
                wait_until(lambda: name_shown(url) == "second")
                report.check("pontoon: shows a new certificate when its file changes", [] if name_shown(url) == "second" else [name_shown(url)])
    statuses = [status for status, _ in answers["mcpo"]]
    wrong = [] if answers["mcpo"] == answers["pontoon"] else [f"mcpo {answers['mcpo']}, Pontoon {answers['pontoon']}"]
    report.check("the same answers over TLS", wrong + ([] if statuses == [200, 200, 200, 422] else [str(statuses)]))


def wait_until(is_so) -> bool:
    deadline = time.monotonic() + CHANGE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if is_so():
                return True
        time.sleep(0.1)
    return False


def process_of(url: str, name: str) -> int:
    return asked(url, f"/{name}/tells", {})[1]["process"]


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended. Linux only."""
    with contextlib.suppress(OSError):
        return not re.search(r"^State:\s+Z", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return False


def hot_reload(both: Both, report: Report) -> None:
    """Servers come, change and go with the configuration. With mcpo they only come."""
    before = {"kept": server("telling"), "changed": server("called", "first", "string"), "gone": server("telling")}
    after = {"kept": server("telling"), "changed": server("called", "second", "integer"), "new": server("plain")}
    for kind in ["mcpo", "pontoon"]:
        folder, log = both.folder_of(kind, "reload"), []
        config = bridges.with_config(folder, before)
        with both.start(kind, "reload", *config, "--hot-reload", log=log) as url:
            kept, gone = process_of(url, "kept"), process_of(url, "gone")
            shown = document_of(url, "changed")
            report.check(f"{kind}: begins with what is there", [] if shown == ["/first"] else [str(shown)])
            if kind == "pontoon":
                (folder / "servers.json").write_text('{"mcpServers": {')
                is_said = wait_until(lambda: any("servers.json" in line and re.search("ERROR|WARN", line) for line in log))
                report.check("pontoon: tells of a file that cannot be read", [] if is_said else ["".join(log[-5:])])
                told = asked(url, "/changed/first", {"it": "a"})
                report.check("pontoon: and goes on as before", [] if told == (200, {"it": "a"}) else [str(told)])
            bridges.with_config(folder, after)
            # mcpo looks at the file when something tells it that it changed, which may be once.
            wait_until(lambda: document_of(url, "new") == ["/plain"])
            told = asked(url, "/new/plain", {"it": "a"})
            report.check(f"{kind}: a new server is there", [] if told == (200, {"it": "a"}) else [str(told)])
            if kind == "mcpo":
                continue
            wait_until(lambda: document_of(url, "changed") == ["/second"])
            told = document_of(url, "changed"), asked(url, "/changed/second", {"it": 1}), asked(url, "/changed/first", {"it": "a"})[0]
            report.check("pontoon: a changed server is what it is now", [] if told == (["/second"], (200, {"it": 1}), 404) else [str(told)])
            wait_until(lambda: not is_running(gone))
            told = asked(url, "/gone/openapi.json")[0], asked(url, "/gone/tells", {})[0], is_running(gone)
            report.check("pontoon: a removed server is gone, and its process", [] if told == (404, 404, False) else [str(told)])
            told = process_of(url, "kept")
            report.check("pontoon: a server that did not change keeps its process", [] if told == kept else [f"{told}, before {kept}"])
            listed = asked(url, "/openapi.json")[1]["info"]["description"]
            wrong = [name for name, is_there in [("kept", True), ("new", True), ("gone", False)] if (f"[{name}](" in listed) != is_there]
            report.check("pontoon: the list of servers is what it is now", [listed] if wrong else [])


def left_out(both: Both, report: Report) -> None:
    """A server that is remote, or not one at all, fails alone, with one line."""
    remotes = {
        "far": {"type": "sse", "url": "http://127.0.0.1:9/sse"},
        "old": {"url": "http://127.0.0.1:9/sse"},
        "http": {"type": "streamable-http", "url": "http://127.0.0.1:9/mcp", "headers": {"A": "b"}},
        "under_score": {"type": "streamable_http", "url": "http://127.0.0.1:9/mcp"},
    }
    for kind in ["mcpo", "pontoon"]:
        # Four of them let mcpo wait for long.
        entries = dict(list(remotes.items())[:1]) if kind == "mcpo" else remotes
        config, log = bridges.with_config(both.folder_of(kind, "remote"), entries | {"plain": server("plain")}), []
        with both.start(kind, "remote", *config, log=log) as url:
            told = asked(url, "/plain/plain", {"it": "a"})
            report.check(f"{kind}: beside remote servers another works", [] if told == (200, {"it": "a"}) else [str(told)])
            listed = asked(url, "/openapi.json")[1]["info"]["description"]
            wrong = [] if "[plain](" in listed and not any(f"[{name}](" in listed for name in entries) else [listed]
            report.check(f"{kind}: the list of servers has only that", wrong)
        if kind == "pontoon":
            for name in entries:
                lines = [line for line in log if re.search(rf"mcpServers\.{name}\b", line)]
                is_one = len(lines) == 1 and "left out" in lines[0]
                report.check(f"pontoon: one line says that {name} is left out", [] if is_one else [f"{len(lines)}: {''.join(lines)}"])


def named(both: Both, report: Report) -> None:
    """mcpo serves a server whose name is no word of a path. Pontoon does so as well, or leaves out that one with a line."""
    names = ["Google Maps", "地図", "a+b@c"]
    for kind in ["mcpo", "pontoon"]:
        config = bridges.with_config(both.folder_of(kind, "named"), {name: server("plain") for name in [*names, "plain"]})
        log: list[str] = []
        try:
            with both.start(kind, "named", *config, log=log) as url:
                told = asked(url, "/plain/plain", {"it": "a"})
                report.check(f"{kind}: beside servers with such names another works", [] if told == (200, {"it": "a"}) else [str(told)])
                for name in names:
                    document, told = asked(url, f"/{name}/openapi.json"), asked(url, f"/{name}/plain", {"it": "a"})
                    is_served = told == (200, {"it": "a"}) and list(document[1].get("paths", {})) == ["/plain"]
                    lines = [line for line in log if name in line and "left out" in line]
                    if kind == "pontoon" and told[0] == 404 and len(lines) == 1:
                        is_served = True
                    report.check(f"{kind}: {name} is served, or left out with a line", [] if is_served else [f"{told}, {lines}"])
        except SystemExit as error:
            report.check(f"{kind}: starts with servers called {names}", ["; ".join(str(error).splitlines()[-4:])])


def mistakes(both: Both, report: Report) -> None:
    """What ends at once, and how."""

    def ended(kind: str, *options) -> tuple[int, str]:
        folder = both.folder_of(kind, "mistakes")
        command = [str(word) for word in [*both.command(kind), *options]]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
        return run.returncode, run.stdout + run.stderr

    told = {kind: ended(kind) for kind in ["mcpo", "pontoon"]}
    report.check("without anything both say the same", [] if told["mcpo"] == told["pontoon"] and told["mcpo"][0] == 1 else [str(told)])
    told = {kind: ended(kind, "--config", "nothing.json")[0] for kind in ["mcpo", "pontoon"]}
    report.check("without the configuration both end with 1", [] if set(told.values()) == {1} else [str(told)])
    for kind in ["sse", "streamable-http", "streamable_http", "streamablehttp"]:
        status, said = ended("pontoon", "--type", kind, "--", "http://127.0.0.1:9/")
        lines = [line for line in said.splitlines() if line.startswith("error")]
        report.check(f"pontoon: --type {kind} ends with 2 and a line", [] if (status, len(lines)) == (2, 1) else [f"{status}: {said[-300:]}"])


def is_free_for_all() -> bool:
    """Whether this machine has more addresses of its own than one."""
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.2", 0))
        except OSError:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    options = parser.parse_args()
    subprocess.run([bridges.REPOSITORY / "scripts" / "setup-tests.sh", "mcpo"], check=True)
    if not is_free_for_all():
        sys.exit("127.0.0.2 is needed: this runs on Linux")
    report = Report()
    with tempfile.TemporaryDirectory(prefix="pontoon-mcpo-line-") as folder:
        both = Both(options.pontoon, pathlib.Path(folder))
        for part in [defaults, paths, people, at_once, loose, variables, tls, hot_reload, left_out, named, mistakes]:
            part(both, report)
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
