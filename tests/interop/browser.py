#!/usr/bin/env python3
"""The browser server of `examples/browser`: Playwright's, with Debian's Chromium, used in several chats.

    tests/interop/browser.py --pontoon target/release/pontoon

A page of this test is opened, changed and photographed, at the level of the example (`confined`) and at
the default one (`basic`), and by root also as an ordinary user. However a browser ends, none of its
processes and none of its temporary files may be left. The browser is PONTOON_CHROMIUM, or the `chromium`
in PATH. Linux only.
Ends with `N passed, N failed`.
"""

import argparse
import contextlib
import functools
import http.server
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "deploy"))

from people import API_KEY, JWT_SECRET, REPOSITORY, Person, link_in, shipped_servers, texts  # noqa: E402
from replicas import CallFailed, Client, Replica, Session, free_port  # noqa: E402

CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
INSTALLS = ["node22", "playwright"]
# The example as it is, without isolation, and with a browser that is soon idle.
SERVERS = ["browser", "basic", "brief"]
IDLE_SECONDS = 1
# What may pass between an end and the end of the last process. The stop of a server has three steps.
END_SECONDS = 15
# What is promised when the bridge is killed.
KILLED_SECONDS = 1
# The user `nobody`.
ORDINARY = 65534

PAGE = """<!doctype html><title>A page</title><link rel="icon" href="data:,">
<style>body { background: rgb(51, 102, 153) }</style><h1>Hello</h1>"""
COLOUR = bytes([51, 102, 153])


class Browsers:
    """The bridge with the shipped configuration, and a web server with one page."""

    def __init__(self, program: pathlib.Path, directory: pathlib.Path, installs: list[pathlib.Path]) -> None:
        site = directory / "site"
        site.mkdir()
        (site / "index.html").write_text(PAGE)
        self.web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Pages, directory=str(site)))
        threading.Thread(target=self.web.serve_forever, daemon=True).start()
        self.page = f"http://127.0.0.1:{self.web.server_port}/"

        shipped = shipped_servers("browser")["browser"]
        shipped["args"] = [chromium() if word == "/usr/bin/chromium" else word for word in shipped["args"]]
        # Where `npm install -g` puts it, it may be read; here it lies elsewhere, as Node does.
        read = [*shipped["isolation"]["read"], *map(str, installs)]
        confined = shipped | {"isolation": shipped["isolation"] | {"read": read}}
        basic = {key: value for key, value in shipped.items() if key != "isolation"}
        servers = dict(zip(SERVERS, [confined, basic, confined | {"idle_timeout": IDLE_SECONDS}], strict=True))
        node22, playwright = installs
        (node,) = node22.glob("node_modules/node-*-*/bin")
        # The path of the jobs is too long for a socket in it: browsers make one in their TMPDIR.
        settings = {
            "PATH": ":".join([str(node), f"{playwright}/node_modules/.bin", os.environ["PATH"]]),
            "MCPO_JOBS_DIR": str(directory / "jobs-with-a-path-that-is-too-long-for-a-socket-in-one-of-its-folders"),
            "MCPO_STATE_DIR": str(directory / "state"),
            "MCPO_API_KEY": API_KEY,
            "MCPO_OWUI_JWT_SECRET": JWT_SECRET,
            "MCPO_STATEFUL_CLEANUP_INTERVAL": "1",
        }
        self.replica = Replica(program, directory / "bridge", f"127.0.0.1:{free_port()}", servers, settings)
        self.url = f"http://{self.replica.listen}"

    def call(self, server: str, person: Person, tool: str, arguments: dict | None = None) -> dict:
        """The result of a tool, in the chat of the person."""
        with Client(self.url, person.headers()) as client:
            return expect_success(tool, client.call(server, tool, arguments))

    def download(self, path: str) -> tuple[str, bytes]:
        """The type and the contents of a file, fetched with nothing but its link."""
        with Client(self.url) as client, client.send("GET", path) as response:
            body = response.read()
            assert response.status == 200, f"{path}: HTTP {response.status} {body[:200]}"
            return response.headers["Content-Type"], body

    @contextlib.contextmanager
    def begun(self):
        """The processes that the bridge starts inside, and their temporary folder."""
        before = {process.pid for process in self.processes()}
        begun = Begun()
        yield begun
        started = [process for process in self.processes() if process.pid not in before]
        browsers = [process for process in started if "chromium" in process.program]
        assert len(browsers) > 2, f"no browser runs: {started}"
        # Those that Chromium forks have overwritten their environment.
        folders = {process.temporary_folder for process in browsers} - {None}
        assert len(folders) == 1, f"the browser has these folders for temporary files: {folders}"
        begun.folder = folders.pop()
        assert begun.folder.is_dir(), begun.folder
        # Servers without a browser may come and go meanwhile, to be asked what they offer.
        server = [process for process in started if process.temporary_folder == begun.folder]
        begun.processes = list({process.pid: process for process in browsers + server}.values())

    def processes(self) -> list["Process"]:
        """All that runs below the bridge, but for its helper."""
        found = [Process.of(int(entry.name)) for entry in pathlib.Path("/proc").glob("[0-9]*")]
        bridge = os.readlink(f"/proc/{self.replica.process.pid}/exe")
        return [it for it in found if it and it.program != bridge and self.replica.owns(it.pid)]


class Pages(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass


class Process:
    """A process, told apart from a later one with its number."""

    def __init__(self, pid: int, start: str, program: str, temporary_folder: pathlib.Path | None = None) -> None:
        self.pid, self.start, self.program, self.temporary_folder = pid, start, program, temporary_folder

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        place = pathlib.Path(f"/proc/{pid}")
        try:
            state, *fields = (place / "stat").read_text().rpartition(")")[2].split()
            variables = (place / "environ").read_bytes().split(b"\0")
            folders = [pathlib.Path(os.fsdecode(it[7:])) for it in variables if it.startswith(b"TMPDIR=")]
            # A process that ended and is not yet collected holds nothing.
            return None if state in "ZX" else cls(pid, fields[18], os.readlink(place / "exe"), *folders)
        except OSError:
            return None

    def runs(self) -> bool:
        now = Process.of(self.pid)
        return now is not None and now.start == self.start

    def __repr__(self) -> str:
        return f"{self.program} ({self.pid})"


class Begun:
    """What a server started."""

    processes: list[Process]
    folder: pathlib.Path

    def wait_until_gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while left := [process for process in self.processes if process.runs()]:
            assert time.monotonic() < deadline, f"still there after {seconds} s: {left}"
            time.sleep(0.02)
        while self.folder.exists():
            assert time.monotonic() < deadline + 1, f"{self.folder} is left: {os.listdir(self.folder)}"
            time.sleep(0.02)


def chromium() -> str:
    program = os.environ.get("PONTOON_CHROMIUM") or shutil.which("chromium")
    if program is None:
        sys.exit("chromium is needed: install it, or name one in PONTOON_CHROMIUM")
    return program


def expect_success(tool: str, result: dict) -> dict:
    assert not result.get("isError"), f"{tool} failed: {texts(result)[0][-1500:]}"
    return result


def open_page(browsers: Browsers, server: str, person: Person) -> None:
    opened = browsers.call(server, person, "browser_navigate", {"url": browsers.page})
    assert "Page Title: A page" in texts(opened)[0], texts(opened)


def title_in(browsers: Browsers, server: str, person: Person) -> str:
    seen = browsers.call(server, person, "browser_evaluate", {"function": "() => document.title"})
    return texts(seen)[0].split("### Result\n", 1)[1].splitlines()[0]


def a_picture_of_a_page_comes_as_a_link(browsers: Browsers, server: str) -> None:
    ada = Person("ada")
    open_page(browsers, server, ada)
    for name, kind in [("page.png", "png"), ("ページ.jpeg", "jpeg")]:
        wanted = {"filename": name, "type": kind}
        taken = browsers.call(server, ada, "browser_take_screenshot", wanted)
        told, picture = browsers.download(link_in(taken, name))
        assert told == f"image/{kind}", told
        expect_picture(kind, picture)


def expect_picture(kind: str, picture: bytes) -> None:
    if kind == "jpeg":
        assert picture[:3] == b"\xff\xd8\xff" and picture[-2:] == b"\xff\xd9", picture[:16]
        return
    assert picture[:8] == b"\x89PNG\r\n\x1a\n", picture[:16]
    chunks, rest = {}, picture[8:]
    while rest:
        length, name = struct.unpack(">I4s", rest[:8])
        body, check = rest[8 : 8 + length], rest[8 + length : 12 + length]
        assert struct.unpack(">I", check)[0] == zlib.crc32(name + body), f"the chunk {name} is damaged"
        chunks[name] = chunks.get(name, b"") + body
        rest = rest[12 + length :]
    width, height, depth, colours = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colours) in [(8, 2), (8, 6)] and width > 100 and height > 100, chunks[b"IHDR"]
    pixels = zlib.decompress(chunks[b"IDAT"])
    assert len(pixels) == height * (1 + width * (3 if colours == 2 else 4)), "rows are missing"
    # The first pixel stands there as it is, whichever way its row is written.
    assert pixels[1:4] == COLOUR, f"the page is not in the picture: {pixels[1:4]}"


def a_chat_finds_its_page_again_and_no_other_does(browsers: Browsers, server: str) -> None:
    ada, other, ben = Person("ada"), Person("ada"), Person("ben")
    open_page(browsers, server, ada)
    browsers.call(server, ada, "browser_evaluate", {"function": "() => { document.title = 'of ada' }"})
    assert title_in(browsers, server, ada) == '"of ada"', "ada's own chat lost its page"
    for person in [other, ben, Person("ben", ada.chat)]:
        title = title_in(browsers, server, person)
        assert title == '""', f"{person.name} sees {title} in another chat"
    assert title_in(browsers, server, ada) == '"of ada"', "another chat took ada's page"


def the_end_of_a_session_ends_its_browser(browsers: Browsers, server: str) -> None:
    headers = Person("ada").headers()
    del headers["X-OpenWebUI-Chat-Id"]
    with browsers.begun() as begun:
        client = Client(browsers.url, headers)
        session = Session(client, server)
        expect_success("browser_navigate", session.call("browser_navigate", {"url": browsers.page}))
    with client:
        assert session.delete() in (200, 204)
    begun.wait_until_gone(END_SECONDS)


def an_idle_browser_ends(browsers: Browsers, server: str) -> None:
    with browsers.begun() as begun:
        open_page(browsers, server, Person("ada"))
    begun.wait_until_gone(IDLE_SECONDS + END_SECONDS)


def a_killed_bridge_leaves_no_browser(browsers: Browsers, server: str) -> None:
    with browsers.begun() as begun:
        open_page(browsers, server, Person("ada"))
    browsers.replica.kill()
    started = time.monotonic()
    while left := [process for process in begun.processes if process.runs()]:
        assert time.monotonic() < started + KILLED_SECONDS, f"left by a bridge that was killed: {left}"
        time.sleep(0.02)
    # Its files are left to the next start.
    browsers.replica.start()
    browsers.replica.wait_until_ready()
    begun.wait_until_gone(END_SECONDS)


def a_bridge_that_ends_leaves_no_browser(browsers: Browsers, server: str) -> None:
    with browsers.begun() as begun:
        open_page(browsers, server, Person("ada"))
    complaints = browsers.replica.stop()
    assert not complaints, complaints
    begun.wait_until_gone(0)


CHECKS = [
    (a_picture_of_a_page_comes_as_a_link, ["browser", "basic"]),
    (a_chat_finds_its_page_again_and_no_other_does, ["browser"]),
    (the_end_of_a_session_ends_its_browser, ["browser", "basic"]),
    (an_idle_browser_ends, ["brief"]),
    (a_killed_bridge_leaves_no_browser, ["browser"]),
    # The last, because no bridge is there after it.
    (a_bridge_that_ends_leaves_no_browser, ["browser"]),
]
# An ordinary user cannot mount, so its walls are others.
CHECKS_AS_ORDINARY = [
    (a_picture_of_a_page_comes_as_a_link, ["browser"]),
    (a_bridge_that_ends_leaves_no_browser, ["browser"]),
]


def check(browsers: Browsers, name: str, work, server: str) -> bool:
    started = time.monotonic()
    try:
        work(browsers, server)
    except (AssertionError, CallFailed, OSError, KeyError, IndexError, ValueError) as error:
        print(f"FAIL {name}: {type(error).__name__}: {str(error)[-1500:]}", flush=True)
        return False
    print(f"ok   {name} ({time.monotonic() - started:.1f} s)", flush=True)
    return True


def check_all(browsers: Browsers, checks: list, only: str, who: str) -> list[bool]:
    passed = []
    try:
        browsers.replica.wait_until_ready()
        for work, servers in checks:
            for server in servers:
                name = f"{work.__name__.replace('_', ' ')}, {server}{who}"
                if only in name:
                    passed.append(check(browsers, name, work, server))
    finally:
        if browsers.replica.process.poll() is None:
            browsers.replica.stop()
    if not all(passed):
        print("last lines of the bridge's log:")
        print("".join(f"    {line[:300]}\n" for line in browsers.replica.log[-20:]), end="")
    return passed


def as_ordinary(program: pathlib.Path, directory: pathlib.Path) -> Browsers:
    """A bridge of a user without rights. It cannot reach the cache of root, so it has copies."""
    installs = [directory / name for name in INSTALLS]
    for name, copy in zip(INSTALLS, installs, strict=True):
        shutil.copytree((CACHE / name).resolve(), copy, symlinks=True)
    shutil.copy(program, directory / "pontoon")
    become = directory / "become.sh"
    words = f"setpriv --reuid {ORDINARY} --regid {ORDINARY} --clear-groups '{directory}/pontoon'"
    become.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    become.chmod(0o755)
    for place in [directory, own := directory / "own"]:
        place.mkdir(exist_ok=True)
        os.chown(place, ORDINARY, ORDINARY)
    return Browsers(become, own, installs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--only", default="", help="a part of a check's name")
    options = parser.parse_args()
    subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *INSTALLS], check=True)
    with tempfile.TemporaryDirectory(prefix="pontoon-browser-") as directory:
        installs = [(CACHE / name).resolve() for name in INSTALLS]
        browsers = Browsers(options.pontoon, pathlib.Path(directory), installs)
        passed = check_all(browsers, CHECKS, options.only, "")
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory(prefix="pontoon-browser-") as directory:
            browsers = as_ordinary(options.pontoon, pathlib.Path(directory))
            passed += check_all(browsers, CHECKS_AS_ORDINARY, options.only, " of an ordinary user")
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if passed and all(passed) else 1)


if __name__ == "__main__":
    main()
