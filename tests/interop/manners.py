"""How the command line behaves at a terminal: it ends at once when it is told to, leaves nothing, and draws no more than fits.

    tests/interop/manners.py --pontoon target/debug/pontoon
    tests/interop/manners.py … --only quiet       one of them

Each case has a pseudo-terminal of its own, whose screen is put together here. Ends with `N passed, N failed`.
"""

import argparse
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback
import uuid

from mistakes import left_running

PATIENCE_SECONDS = 20
# What is at once for a person, with room for a busy machine.
SOON_SECONDS = 5
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FILE = "mcp-servers.json"
INTERRUPT, END = b"\x03", b"\x04"
# Ends neither with its input nor by SIGTERM.
STUBBORN = {"command": "sh", "args": ["-c", "trap : TERM; while :; do sleep 1; done"]}


class Screen:
    """What a terminal shows: enough of one for a line that is drawn again and again."""

    def __init__(self, columns: int):
        self.columns, self.lines, self.row, self.column, self.wraps = columns, [""], 0, 0, 0

    def write(self, text: str) -> None:
        for piece in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|.|\n", text, re.DOTALL):
            if piece == "\r":
                self.column = 0
            elif piece == "\n":
                self.row += 1
            elif piece == "\x1b[H":
                self.row = self.column = 0
            elif piece == "\x1b[J":
                self.lines = self.lines[: self.row + 1]
                self.lines[self.row] = self.lines[self.row][: self.column]
            elif piece == "\x1b[K":
                self.lines[self.row] = self.lines[self.row][: self.column]
            elif piece.endswith("A") and piece.startswith("\x1b["):
                self.row -= int(piece[2:-1])
            elif not piece.startswith("\x1b"):
                self.put(piece)
            while self.row >= len(self.lines):
                self.lines.append("")

    def put(self, letter: str) -> None:
        if self.column == self.columns:
            self.row, self.column, self.wraps = self.row + 1, 0, self.wraps + 1
            self.lines += [""] * (self.row + 1 - len(self.lines))
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + letter + line[self.column + 1 :]
        self.column += 1

    def text(self) -> str:
        return "\n".join(self.lines).rstrip()


class Case:
    """A folder to be in, and what is run there."""

    def __init__(self, pontoon: pathlib.Path, folder: str):
        self.pontoon, self.folder, self.tag = pontoon, pathlib.Path(folder), uuid.uuid4().hex
        for name in ("home", "tmp"):
            (self.folder / name).mkdir()
        self.env = {
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "MANNERS_TAG": self.tag,
            "MCPO_JOBS_DIR": str(self.folder / "jobs"),
        }

    def serve(self, **servers) -> None:
        for server in servers.values():
            server["env"] = {"MANNERS_TAG": self.tag}
        (self.folder / FILE).write_text(json.dumps({"mcpServers": servers}))

    def piped(self, *typed: str, **env: str) -> tuple[int, str, str]:
        """Runs it without a terminal."""
        done = subprocess.run(
            [self.pontoon, *typed], cwd=self.folder, env=self.env | env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def at_terminal(self, *typed: str, keys=(), columns: int = 80, **env: str) -> "Run":
        """Runs it at a terminal. `keys` are pairs: what is waited for on the screen, and what is typed or sent then."""
        run = Run(self, typed, columns, self.env | env)
        run.to_its_end(list(keys))
        return run

    def left(self) -> list[str]:
        """What is left of all runs, some moments after the last one."""
        end = time.monotonic() + SOON_SECONDS
        while True:
            left = [str(path) for path in (self.folder / "tmp").iterdir()] + left_running(self.tag)
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.02)


class Run:
    """A command at a pseudo-terminal."""

    def __init__(self, case: Case, typed, columns: int, env: dict[str, str]):
        self.typed, self.screen, self.raw, self.told_at = typed, Screen(columns), "", None
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            # Who runs this in the background may have it ignored.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            # The size is known before anything is drawn.
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.chdir(case.folder)
            os.execve(case.pontoon, ["pontoon", *typed], env)
        self.before = None

    def to_its_end(self, keys: list) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        try:
            while time.monotonic() < end and self.hear():
                if self.before is None:
                    self.before = termios.tcgetattr(self.terminal)
                if keys and re.search(keys[0][0], self.raw):
                    self.send(keys.pop(0)[1])
                    self.told_at = time.monotonic()
            self.after = termios.tcgetattr(self.terminal)
        finally:
            if time.monotonic() >= end:
                os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            os.close(self.terminal)
        self.took = time.monotonic() - (self.told_at or end - PATIENCE_SECONDS)
        code = os.waitstatus_to_exitcode(status)
        # As a shell tells it.
        self.code = 128 - code if code < 0 else code

    def hear(self) -> bool:
        """Takes over what it writes; false at its end."""
        ready, _, _ = select.select([self.terminal], [], [], 0.05)
        if not ready:
            return True
        try:
            heard = os.read(self.terminal, 1 << 16)
        except OSError:
            return False
        text = heard.decode(errors="replace")
        self.raw += text
        self.screen.write(text)
        return bool(heard)

    def is_told(self, how) -> None:
        """Tells it to end, and waits for that."""
        self.told_at = time.monotonic()
        self.send(how)
        self.to_its_end([])

    def send(self, what) -> None:
        if isinstance(what, bytes):
            os.write(self.terminal, what)
        elif isinstance(what, signal.Signals):
            os.kill(self.pid, what)

    def check(self, code: int) -> None:
        """It ended so, at once after it was told to, and the terminal is as it was."""
        assert self.code == code, f"exit code {self.code}: {self.raw}"
        assert self.told_at is None or self.took < SOON_SECONDS, f"{self.took:.1f} s"
        assert self.before == self.after, "the terminal is another"
        assert self.screen.column == 0, f"the cursor is not at the beginning of a line: {self.screen.lines}"
        text = self.screen.text()
        assert not any(letter in text for letter in SPINNER), f"a spinner is left: {text}"
        assert "\x1b[?25l" not in self.raw, "the cursor is hidden"


ENDINGS = [(INTERRUPT, 130), (signal.SIGTERM, 143)]


def a_question_ends_at_once(case: Case) -> None:
    for how, code in ENDINGS:
        run = case.at_terminal("call", "demo", "ask_name", keys=[(r"\): $", how)])
        run.check(code)
        assert "the server asks: What is your name?" in run.screen.text(), run.screen.text()


def a_question_is_answered_and_its_end_is_heard(case: Case) -> None:
    run = case.at_terminal("call", "demo", "ask_name", keys=[(r"\): $", b"Ada\r")])
    run.check(0)
    assert run.screen.text().endswith("\nHello, Ada!"), run.screen.text()
    run = case.at_terminal("call", "demo", "ask_name", keys=[(r"\): $", END)])
    run.check(0)
    assert run.screen.text().endswith("\nHello, whoever you are!"), run.screen.text()


def what_waits_for_a_server_ends_at_once(case: Case) -> None:
    case.serve(stubborn=dict(STUBBORN))
    for typed in (["tools", "stubborn"], ["call", "stubborn", "x"], ["doctor", "stubborn"]):
        for how, code in ENDINGS:
            run = case.at_terminal(*typed, keys=[(r"\(1 s", how)])
            run.check(code)
            assert "stubborn" in run.raw, run.raw
            left = case.left()
            assert not left, f"{typed}: {left}"


def a_call_that_runs_ends_at_once(case: Case) -> None:
    for how, code in ENDINGS:
        run = case.at_terminal("call", "demo", "slow_echo", "text=x", "seconds=60", keys=[(r"\(1 s of", how)])
        run.check(code)
        assert 'waiting for the result of "slow_echo"' in run.raw, run.raw


def bridges_end_when_they_are_told(case: Case) -> None:
    # In order, which is success, as systemd and Docker have it.
    for command in (["serve", "--port", "0"], ["mcpo", "--port", "0", "--", case.pontoon, "demo"]):
        for how, _ in ENDINGS:
            case.at_terminal(*map(str, command), keys=[(r"Open WebUI", how)]).check(0)
    for how, code in ENDINGS:
        run = Run(case, ["connect", f"unix:{case.folder / 'app.sock'}"], 80, case.env)
        # It says nothing, but `pontoon status` finds it once it hears signals.
        wait_until(lambda: list(case.folder.joinpath("home").rglob("*.lock")))
        run.is_told(how)
        assert run.code == code and run.took < SOON_SECONDS, f"{run.code} after {run.took:.1f} s: {run.raw}"


def what_waits_for_a_bridge_or_a_file_ends_at_once(case: Case) -> None:
    deaf = socket.create_server(("127.0.0.1", 0))
    deaf.settimeout(PATIENCE_SECONDS)
    pipe = case.folder / "never-written"
    os.mkfifo(pipe)
    for how, code in ENDINGS:
        run = Run(case, ["health", "--url", f"http://127.0.0.1:{deaf.getsockname()[1]}"], 80, case.env)
        caller, _ = deaf.accept()
        end = time.monotonic() + PATIENCE_SECONDS
        while "waiting for the bridge at" not in run.raw and time.monotonic() < end:
            run.hear()
        run.is_told(how)
        caller.close()
        assert "s of 5 s)" in run.raw, run.raw
        assert run.code == code and run.took < SOON_SECONDS, f"health: {run.code} {run.raw}"
        for typed in (["check"], ["gc"], ["jobs"], ["tools", "demo"]):
            run = Run(case, [*typed, "--config", str(pipe)], 80, case.env)
            writers = []
            # There is a reader as soon as the command waits for its file.
            wait_until(lambda: writers or opened(pipe, writers))
            run.is_told(how)
            os.close(writers.pop())
            assert run.code == code and run.took < SOON_SECONDS, f"{typed}: {run.code} {run.raw}"


def opened(pipe: pathlib.Path, writers: list[int]) -> bool:
    try:
        writers.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def wait_until(holds) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, "it does not come to pass"
        time.sleep(0.02)


def a_look_that_goes_on_ends_at_once(case: Case) -> None:
    for how, code in ENDINGS:
        run = case.at_terminal("status", "--watch", keys=[(r"no bridge", how)])
        assert run.code == code and run.took < SOON_SECONDS, f"{run.code}: {run.raw}"


def a_second_interrupt_ends_a_bridge_that_waits_for_a_call(case: Case) -> None:
    case.serve(demo={"command": str(case.pontoon), "args": ["demo"]})
    run = Run(case, ["serve", "--port", "0"], 120, case.env)
    end = time.monotonic() + PATIENCE_SECONDS
    while "/docs" not in run.raw and time.monotonic() < end:
        run.hear()
    port = re.search(r"listening on http://127\.0\.0\.1:(\d+)", run.raw)[1]
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "slow_echo", "arguments": {"text": "x", "seconds": 60}}}
    body = json.dumps(call).encode()
    caller = socket.create_connection(("127.0.0.1", int(port)))
    caller.sendall(
        b"POST /mcp/demo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    # The bridge, what starts its servers, and the server.
    wait_until(lambda: len(left_running(case.tag)) >= 3)
    run.send(signal.SIGINT)
    # It has heard the first one when it takes no new connection.
    wait_until(lambda: refuses(int(port)))
    run.is_told(signal.SIGINT)
    caller.close()
    assert run.code == 130 and run.took < SOON_SECONDS, f"{run.code} after {run.took:.1f} s: {run.raw}"


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


def a_wait_is_told_at_a_terminal_and_nowhere_else(case: Case) -> None:
    silent = {"command": "sleep", "args": ["600"], "timeout": 3}
    case.serve(silent=silent)
    run = case.at_terminal("tools", "silent", columns=300)
    run.check(1)
    assert 'waiting for "silent" to answer `initialize` (1 s of 3 s)' in run.raw, run.raw
    said = run.screen.text()
    assert said.startswith("error: the server `silent` does not start: it did not answer `initialize` within 3 s"), said
    code, out, err = case.piped("tools", "silent")
    assert (code, out) == (1, "") and err.startswith("error:") and "\r" not in err, err
    for quiet in (["tools", "-q", "silent"],):
        run = case.at_terminal(*quiet)
        assert "waiting" not in run.raw, run.raw


def lines_fit_thirty_columns(case: Case) -> None:
    case.serve(a_server_with_a_long_name={"command": "sleep", "args": ["600"], "timeout": 2})
    for typed in (
        ["call", "demo", "count", "to=12", "delay_ms=100"],
        ["call", "demo", "slow_echo", "text=x", "seconds=2"],
    ):
        if (case.folder / FILE).exists():
            (case.folder / FILE).rename(case.folder / "later.json")
        run = case.at_terminal(*typed, columns=30)
        run.check(0)
        drawn = [it.split("\x1b[J")[-1] for it in run.raw.split("\r") if "\x1b[J" in it]
        assert len(drawn) > 3 and run.screen.wraps == 0, run.raw
    run = case.at_terminal("tools", "--config", "later.json", "a_server_with_a_long_name", columns=30)
    drawn = [it[3:] for it in run.raw.split("\r") if it.startswith("\x1b[J") and it[3:4] in SPINNER and it[3:]]
    assert drawn and all(len(it) < 30 and "s)" in it for it in drawn), drawn


def colours_are_where_they_are_wanted(case: Case) -> None:
    red = "\x1b[1;31merror:\x1b[0m"
    for env, at_terminal, piped in (
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False, False),
    ):
        run = case.at_terminal("tools", "nowhere", **env)
        assert (red in run.raw) == at_terminal and ("\x1b" in run.raw) == at_terminal, f"{env}: {run.raw!r}"
        _, _, err = case.piped("tools", "nowhere", **env)
        assert (red in err) == piped and ("\x1b" in err) == piped, f"{env}: {err!r}"
    run = case.at_terminal("call", "demo", "slow_echo", "text=x", "seconds=2", TERM="dumb")
    assert run.raw.strip() == "x", f"nothing is drawn again and again there: {run.raw!r}"


def quiet_commands_tell_results_and_errors_alone(case: Case) -> None:
    typed = ["call", "demo", "make_report", "title=Sales", 'lines=["one"]', "format=md"]
    _, out, err = case.piped(*typed)
    assert "saved Sales.md" in err, err
    code, quiet, err = case.piped(*typed, "--quiet")
    assert (code, err) == (0, "") and quiet, f"{quiet!r} {err!r}"
    case.serve(a={"command": str(case.pontoon), "args": ["demo"], "unknown_key": 1})
    assert "unknown key" in case.piped("tools", "a")[2]
    code, out, err = case.piped("tools", "a", "-q")
    assert code == 0 and "greet" in out and err == "", err
    assert case.piped("check", "-q") == (0, "", "")
    code, out, err = case.piped("tools", "b", "-q")
    assert code == 1 and out == "" and err.startswith("error: "), err


def collecting_is_silent_when_all_is_well(case: Case) -> None:
    jobs = case.folder / "jobs"
    jobs.mkdir(mode=0o700)
    assert case.piped("gc") == (0, "", "")
    assert case.piped("gc", MCPO_MAX_CONCURENT="4") == (0, "", ""), "a mistake elsewhere is no matter"
    assert "MCPO_MAX_CONCURENT" in case.piped("gc", "--verbose", MCPO_MAX_CONCURENT="4")[2]
    code, out, err = case.piped("gc", "--verbose")
    assert (code, err) == (0, "") and out.startswith("removed 0 jobs and 0 sessions in "), out
    code, out, err = case.piped("gc", "--json")
    assert code == 0 and json.loads(out)["failed"] == [] and err == "", out
    shutil.rmtree(jobs)
    code, out, err = case.piped("gc")
    assert code == 1 and out == "" and "nothing was removed" in err, err


CASES = [
    a_question_ends_at_once,
    a_question_is_answered_and_its_end_is_heard,
    what_waits_for_a_server_ends_at_once,
    a_call_that_runs_ends_at_once,
    bridges_end_when_they_are_told,
    what_waits_for_a_bridge_or_a_file_ends_at_once,
    a_look_that_goes_on_ends_at_once,
    a_second_interrupt_ends_a_bridge_that_waits_for_a_call,
    a_wait_is_told_at_a_terminal_and_nowhere_else,
    lines_fit_thirty_columns,
    colours_are_where_they_are_wanted,
    quiet_commands_tell_results_and_errors_alone,
    collecting_is_silent_when_all_is_well,
]


def end_all(case: Case) -> None:
    """Ends what a case that failed left running."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if case.tag.encode() in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pontoon", type=pathlib.Path, required=True)
    parser.add_argument("--only", help="those whose names have this")
    arguments = parser.parse_args()
    passed = failed = 0
    for look in CASES:
        if arguments.only and arguments.only not in look.__name__:
            continue
        with tempfile.TemporaryDirectory(prefix="m-", ignore_cleanup_errors=True) as folder:
            try:
                case = Case(arguments.pontoon.resolve(), folder)
                look(case)
                left = case.left()
                assert not left, f"left: {left}"
                passed += 1
            except Exception:
                failed += 1
                print(f"FAILED {look.__name__}\n{traceback.format_exc()}", flush=True)
                end_all(case)
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0 or not passed)


if __name__ == "__main__":
    sys.exit(main())
