"""A terminal of a new user, and what one types into it first. For the tests beside this file; standard library only."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import uuid

CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
PYTHON_WITH_SDK = CACHE / "py-mcp2" / "bin"
PORT_SHOWN = 8080
JOBS_SHOWN = "/tmp/mcpo-jobs"
LONGEST_SECONDS = 60

# What is typed by somebody whose Python has the SDK.
CLIENT = """\
import asyncio
from mcp import Client

async def main():
    async with Client("http://127.0.0.1:8080/mcp/demo") as client:
        report = {"title": "Plans", "lines": ["from an SDK"], "format": "md"}
        result = await client.call_tool("make_report", report)
        print(result.content[1].resource.text)

asyncio.run(main())
"""


@dataclasses.dataclass
class Typed:
    """A line, and what was said to it, as if the bridge had its usual port and folder."""

    line: str
    said: str


def environment(home: pathlib.Path, *folders: pathlib.Path) -> dict[str, str]:
    """That of a user who has set nothing, but for the folder of jobs, which all users of this machine share."""
    path = [str(folder) for folder in folders] + ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    return {"HOME": str(home), "PATH": ":".join(path), "LANG": "C.UTF-8", "TMPDIR": str(home), "MCPO_JOBS_DIR": f"{home}/jobs"}


class Terminal:
    """A bash that reads one line after the other."""

    def __init__(self, folder: pathlib.Path, settings: dict[str, str]) -> None:
        self.port = PORT_SHOWN
        self.jobs = settings["MCPO_JOBS_DIR"]
        self.bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def type(self, line: str) -> Typed:
        """Types it, and waits until it is over. What fails is an error."""
        mark = f"over-{uuid.uuid4()}"
        actual = line.replace(f":{PORT_SHOWN}", f":{self.port}")
        # The line has no part in what is typed to bash itself.
        self.bash.stdin.write(f"{{ {actual}\n}} </dev/null\nprintf '\\n{mark} %s\\n' $?\n")
        self.bash.stdin.flush()
        watchdog = threading.Timer(LONGEST_SECONDS, lambda: os.killpg(self.bash.pid, signal.SIGKILL))
        watchdog.start()
        said, status = [], None
        for read in self.bash.stdout:
            if read.startswith(mark):
                status = int(read.split()[1])
                break
            said.append(read)
        watchdog.cancel()
        text = "".join(said).rstrip("\n").replace(f":{self.port}", f":{PORT_SHOWN}").replace(self.jobs, JOBS_SHOWN)
        assert status is not None, f"`{line}` took longer than {LONGEST_SECONDS} s: {text}"
        assert status == 0, f"`{line}` ended with {status}: {text}"
        return Typed(line, text)

    def close(self) -> None:
        self.bash.stdin.close()
        self.bash.stdout.close()
        assert self.bash.wait(LONGEST_SECONDS) == 0


@contextlib.contextmanager
def terminal(folder: pathlib.Path, settings: dict[str, str]):
    opened = Terminal(folder, settings)
    try:
        yield opened
    finally:
        opened.close()


@contextlib.contextmanager
def serving(folder: pathlib.Path, settings: dict[str, str]):
    """`pontoon serve` as it is typed, in a terminal of its own. Gives the port, the process and what it says at first."""
    settings = settings | {"MCPO_LISTEN": "127.0.0.1:0"}
    with open(folder / "pontoon.log", "w") as log:
        bridge = subprocess.Popen(
            ["pontoon", "serve"], cwd=folder, env=settings, stdout=log, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    try:
        first = bridge.stderr.readline()
        found = re.search(r"listening on http://127\.0\.0\.1:(\d+)$", first.strip())
        assert found, first
        yield int(found[1]), bridge, first.replace(f":{found[1]}", f":{PORT_SHOWN}")
        if bridge.poll() is None:
            bridge.terminate()
        assert ended(bridge) == 0, "the bridge did not end in order"
    finally:
        if bridge.poll() is None:
            os.killpg(bridge.pid, signal.SIGKILL)
            bridge.wait()
        bridge.stderr.close()


def ended(bridge: subprocess.Popen) -> int:
    """Waits until it is over, and all that came of it: its status. What stays behind is ended, and an error."""
    late = threading.Event()

    def end_all() -> None:
        late.set()
        os.killpg(bridge.pid, signal.SIGKILL)

    watchdog = threading.Timer(LONGEST_SECONDS / 2, end_all)
    watchdog.start()
    # All of its processes have this pipe, or end with one that has, so its end is the end of all of them.
    bridge.stderr.read()
    watchdog.cancel()
    status = bridge.wait(LONGEST_SECONDS)
    assert not late.is_set(), f"with status {status} it was over, and a process of it was not"
    return status


def use_demo(folder: pathlib.Path, shell: Terminal, settings: dict[str, str]) -> tuple[str, list[Typed]]:
    """Serves the demo, calls tools from the shell and from an SDK, and downloads the file that a call made.

    Gives what the bridge said at first, and what was typed.
    """
    (folder / "client.py").write_text(CLIENT)
    with serving(folder, settings) as (port, _, first):
        client = folder / "client.py"
        client.write_text(CLIENT.replace(f":{PORT_SHOWN}", f":{port}"))
        shell.port = port
        typed = [shell.type("pontoon call demo greet name=Ada")]
        assert typed[-1].said == "Hello, Ada!", typed[-1]
        report = json.dumps({"title": "Sales", "lines": ["one", "two"], "format": "md"})
        typed.append(shell.type(f"curl -s --json '{report}' http://127.0.0.1:{PORT_SHOWN}/mcpo/demo/make_report"))
        typed += download(shell, typed[-1].said, "Sales.md", "# Sales\n\n- one\n- two")
        with terminal(folder, environment(folder, PYTHON_WITH_SDK)) as other:
            other.port = port
            typed.append(other.type("python3 client.py"))
        typed += download(shell, typed[-1].said, "Plans.md", "# Plans\n\n- from an SDK")
        client.write_text(CLIENT)
    return first, typed


def download(shell: Terminal, said: str, name: str, content: str) -> list[Typed]:
    """Fetches the file by the link in an answer, as its reader would."""
    links = set(re.findall(rf"http://127\.0\.0\.1:{PORT_SHOWN}/files/[0-9a-f-]{{36}}/{re.escape(name)}", said))
    assert len(links) == 1, f"{len(links)} links to {name} in {said}"
    typed = [shell.type(f"curl -sSfO {links.pop()}"), shell.type(f"cat {name}")]
    assert typed[0].said == "" and typed[1].said.strip() == content, typed
    return typed
