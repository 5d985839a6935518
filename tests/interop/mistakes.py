"""Mistakes that people make, each typed for real: what is said of it, the exit code, and that nothing is left.

    tests/interop/mistakes.py --pontoon target/debug/pontoon
    tests/interop/mistakes.py … --show            print every message, to be read as a stranger would
    tests/interop/mistakes.py … --only utf-16     one of them

A row has what was typed, the file and the environment it was typed with, the exit code, and words that the message has to
have: what is wrong, where, and what to do. Ends with `N passed, N failed`.
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

PATIENCE_SECONDS = 30
FILE = "mcp-servers.json"


@dataclass
class Mistake:
    name: str
    typed: str
    code: int
    words: list[str]
    file: object = None
    env: dict[str, str] = field(default_factory=dict)
    # Files that lie beside: names with their bytes, or None for a folder.
    beside: dict[str, bytes | None] = field(default_factory=dict)
    unsaid: list[str] = field(default_factory=list)


ROWS: list[Mistake] = []


def row(name: str, typed: str, code: int, *words: str, **more) -> None:
    ROWS.append(Mistake(name, typed, code, list(words), **more))


def servers(**entries) -> dict:
    return {"mcpServers": entries}


def key(written: object, *words: str, name: str, command: object = "/bin/true", code: int = 1, **more) -> None:
    """A key of a server with this value: `check` names it, with its line."""
    entry = ({} if command is None else {"command": command}) | {name: written}
    row(f"key {name}: {json.dumps(written)}", "check", code, f"mcpServers.a.{name}", "line 1", *words, file=servers(a=entry), **more)


def variable(name: str, value: str, *words: str, code: int = 1, **more) -> None:
    """A variable with this value: `check` names it."""
    row(f"variable {name}={value}", "check", code, "environment", name, *words, env={name: value}, **more)


def typed() -> None:
    row("no command", "", 2, "Usage", "serve", "--help")
    row("misspelt command", "srve", 2, "unrecognized subcommand 'srve'", "serve")
    row("servers", "servers", 2, "unrecognized subcommand 'servers'", "hint: `pontoon check` lists the servers")
    row("list", "list", 2, "'list'", "hint: `pontoon check` lists")
    row("ls", "ls", 2, "'ls'", "`pontoon tools NAME`")
    row("run", "run", 2, "'run'", "hint: `pontoon serve`")
    row("start", "start", 2, "'start'", "`pontoon serve`", unsaid=["status"])
    row("stop", "stop", 2, "'stop'", "Ctrl-C", "SIGTERM")
    row("ps", "ps", 2, "'ps'", "`pontoon status`")
    row("add", "add", 2, "'add'", FILE)
    row("validate", "validate", 2, "'validate'", "`pontoon check`")
    row("inspect", "inspect", 2, "'inspect'", "`pontoon doctor -- COMMAND`")
    row("exec", "exec", 2, "'exec'", "`pontoon call SERVER TOOL key=value`")
    row("prune", "prune", 2, "'prune'", "`pontoon gc`")
    row("history", "history", 2, "'history'", "`pontoon jobs`")
    row("version", "version", 2, "'version'", "`pontoon --version`")
    row("misspelt flag", "serve --confg x.json", 2, "--confg", "--config")
    row("port that is a word", "serve --port http", 2, "--port", "http", "a number from 0 to 65535")
    row("port too large", "serve --port 70000", 2, "--port", "70000", "65535")
    row("port and listen", "serve --port 1 --listen 127.0.0.1:2", 2, "--port", "--listen", "cannot be used with")
    row("listen without port", "serve --listen 127.0.0.1", 1, "--listen", "127.0.0.1", "port")
    row("listen on a name", "serve --listen example:80", 1, "--listen", "example:80")
    row("log level", "serve --log-level loud", 1, "--log-level", "loud", "DEBUG")
    row("certificate alone", "serve --port 0 --tls-cert x.pem", 1, "--tls-cert", "--tls-key")
    row("key of TLS alone", "check", 1, "MCPO_TLS_KEY", "MCPO_TLS_CERT", env={"MCPO_TLS_KEY": "x.pem"})
    row("certificate that is missing", "serve --port 0 --tls-cert a.pem --tls-key b.pem", 1, "a.pem", "No such file")
    row("strict without key", "serve --port 0 --strict-auth", 1, "--strict-auth", "set MCPO_API_KEY")
    row("beyond this machine without key", "serve --listen 0.0.0.0:0", 1, "0.0.0.0:0", "MCPO_API_KEY", "--insecure",
        file=servers(a={"command": "/bin/true"}))
    row("command and file", "serve --config x.json -- cat", 2, "--config", "cannot be used with")
    row("port in use", "serve --port {taken}", 1, "cannot listen on 127.0.0.1:{taken}", "another program listens there", "--port")
    row("address of another machine", "serve --listen 192.0.2.1:8080 --insecure", 1, "192.0.2.1:8080", "no such address", "127.0.0.1")
    row("tools without server", "tools", 2, "<SERVER>", "Usage")
    row("tools of no server", "tools dmo", 1, 'no server "dmo"', "there is demo", 'did you mean "demo"?')
    row("call of no server", "call dmo greet name=x", 1, 'no server "dmo"', 'did you mean "demo"?')
    row("call without tool", "call demo", 2, 'which tool of "demo"?', "pontoon tools demo", "pontoon call demo TOOL")
    row("call of no tool", "call demo gret name=x", 1, 'no tool "gret"', "make_report", 'did you mean "greet"?')
    row("call with another argument", "call demo greet nam=x", 1, 'no argument "nam"', 'did you mean "name"?')
    row("call with a word alone", "call demo greet Ada", 1, '"Ada" is no argument', "key=value")
    row("call without a name", "call demo greet =Ada", 1, '"=Ada" is no argument', "key=value")
    row("call without an argument", "call demo greet", 1, "name")
    row("call with an argument twice", "call demo greet name=a name=b", 1, '"name" was typed twice')
    row("call with a wrong type", "call demo count to=many", 1, "`to`")
    row("answer to nothing asked", "call demo greet name=x --answer nam=Bob", 0, "--answer nam=", "asked nothing")
    row("answer to another question", "call demo ask_name --answer nam=Bob", 0, 'ask for "nam"', "--answer name=")
    row("answer without a value", "call demo ask_name --answer Bob", 1, '"Bob" is no argument', "key=value")
    row("question without a terminal", "call demo ask_name", 0, "standard input is no terminal", "--answer name=")
    row("doctor of no server", "doctor dmo", 2, 'no server "dmo"', 'did you mean "demo"?', "hint:", "`--`")
    row("doctor of a missing command", "doctor -- gone-7", 3, "gone-7", "not found")
    row("doctor of two URLs", "doctor http://127.0.0.1:1 http://127.0.0.1:2", 2, "one URL")
    row("doctor with a token for a command", "doctor demo --token-env X", 2, "for a URL")
    row("doctor with a profile that is none", "doctor demo --profile claud", 2, "no profile", "claude-code")
    row("doctor with a call that is no JSON", "doctor demo --call greet=Ada", 2, "--call", 'TOOL={"argument": "value"}')
    row("doctor with a time that is none", "doctor demo --timeout soon", 2, "--timeout", "soon", "such as 30s")
    row("gc of a folder that is missing", "gc", 1, "no jobs directory", "gone-7", "MCPO_JOBS_DIR", "nothing was removed", env={"MCPO_JOBS_DIR": "gone-7"})
    row("gc of a file", "gc", 1, "not a directory", env={"MCPO_JOBS_DIR": "f"}, beside={"f": b""})
    row("gc verbose and quiet", "gc --verbose --quiet", 2, "--verbose", "--quiet")
    row("gc with an expiry that is none", "gc", 1, "MCPO_FILE_EXPIRY", "soon", env={"MCPO_FILE_EXPIRY": "soon"})
    row("jobs where no bridge ran", "jobs", 1, "no jobs directory", "a bridge makes it", "MCPO_JOBS_DIR", env={"MCPO_JOBS_DIR": "gone-7"})
    row("jobs with a status that is none", "jobs --status broken", 2, "--status", "broken", "failed")
    row("jobs since a word", "jobs --since yesterday", 2, "--since", "yesterday", "such as 30s")
    row("jobs show of no id", "jobs show 7", 2, "no id of a job", "`pontoon jobs`")
    row("health of nobody", "health --url http://127.0.0.1:{free}", 1, "no bridge answers", "http://127.0.0.1:{free}")
    row("health of no URL", "health --url localhost", 1, '"localhost" cannot be asked', "http://127.0.0.1:8080")
    row("status of a word", "status demo", 2, "demo", "no number of a process", "`pontoon status`")
    row("connect without address", "connect", 2, "Usage")
    row("connect over http", "connect http://127.0.0.1:1", 2, "http", "ws://")
    row("connect without scheme", "connect localhost:7400", 2, "localhost:7400", "ws://")
    row("connect with a password", "connect ws://me:secret@127.0.0.1:1", 2, "password", unsaid=["secret@"])
    row("connect with a token that is not set", "connect ws://127.0.0.1:1 --token-env GONE_7", 2, "GONE_7")
    row("connect with a header that is none", "connect ws://127.0.0.1:1 --header X", 2, "X")
    row("config for no client", "config emacs", 2, "emacs")
    row("mcpo without a command", "mcpo", 1, "Usage", "--")
    row("mcpo without dashes", "mcpo uvx time", 1, "hint", "pontoon mcpo [OPTIONS] -- uvx time")
    row("mcpo with a misspelt flag", "mcpo --prot 9 -- x", 2, "--prot", "--help")
    row("file that is missing", "check --config gone.json", 1, "--config", "gone.json", "No such file")
    row("file of a variable that is missing", "check", 1, "MCPO_CONFIG_FILE", "gone.json", env={"MCPO_CONFIG_FILE": "gone.json"})
    row("file that is a folder", "check --config d", 1, "--config", "d", "directory", beside={"d": None})


def files() -> None:
    row("utf-16", "check", 1, FILE, "UTF-16", "save it as UTF-8", beside={FILE: json.dumps(servers()).encode("utf-16")})
    row("utf-16 without its mark", "check", 1, "UTF-16", "save it as UTF-8", beside={FILE: json.dumps(servers()).encode("utf-16-le")})
    row("latin-1", "check", 1, FILE, "not UTF-8", "line 2", "save it as UTF-8", beside={FILE: b'{\n"\xe4": 1}'})
    row("empty file", "check", 1, FILE, "is empty", beside={FILE: b""})
    row("missing comma", "check", 1, "line 1", "expected comma", beside={FILE: b'{"mcpServers": {} "x": 1}'})
    row("missing brace", "check", 1, "line 1", "unterminated object", beside={FILE: b'{"mcpServers": {'})
    row("single quotes", "check", 1, "single-quoted", beside={FILE: b"{'mcpServers': {}}"})
    row("a list", "check", 1, "expected an object", file=[])
    row("no mcpServers", "check", 1, "there is no `mcpServers`", 'write {"mcpServers"', file={})
    row("misspelt mcpServers", "check", 1, "mcpServer", "did you mean `mcpServers`?", file={"mcpServer": {}})
    row("no server", "check", 1, "mcpServers", "names no server", file=servers())
    row("all disabled", "check", 1, "not disabled", file=servers(a={"command": "x", "disabled": True}))
    row("a server that is a text", "check", 1, "mcpServers.a", "expected an object", file=servers(a="uvx"))
    row("two servers of one name", "check", 1, "written twice", beside={FILE: b'{"mcpServers": {"a": {"command": "/bin/true"}, "a": {}}}'})
    row("a name with a blank", "check", 1, 'mcpServers."my server"', "1 to 64 letters", file={"mcpServers": {"my server": {"command": "/bin/true"}}})
    row("a name of ours", "check", 1, "`mcp` is a path of the bridge", file=servers(mcp={"command": "/bin/true"}))
    row("no command", "check", 1, "mcpServers.a", "no `command` to start", file=servers(a={}))
    key("comand", "did you mean `command`?", name="comand", command=None)
    key("ls -la", '"command": "ls", "args": ["-la"]', name="command", command=None)
    key("gone-7", "`gone-7` was not found; looked in", name="command", command=None)
    key("~/bin/x", "No shell reads it", "whole path", name="command", command=None)
    key("uvx", "It comes with uv", name="command", command=None, env={"PATH": "/nowhere"})
    key("./d", "not an executable file", name="command", command=None, beside={"d": None})
    key("", "is empty", name="command", command=None)
    key(["a"], "expected text", name="command", command=None)
    key("-x", "expected a list", name="args")
    key(["~/x"], "`~` reaches the program as it is", "${env:HOME}", name="args", code=0)
    key(["$HOME/x"], "`$HOME` reaches the program as it is", "${env:HOME}", name="args", code=0)
    key(["${HOME}/x"], "passed on as written", "${env:NAME}", name="args", code=0)
    key(["${env:GONE_7}"], "`GONE_7` is not set", name="args")
    key(["${user:phone}"], "${user:id}", name="args")
    key({"A": "~/x"}, "`~` reaches the program as it is", name="env", code=0)
    key({"A": 5}, "expected text", name="env")
    key(["A"], "expected an object", name="env")
    key("gone-7", "there is no folder", "gone-7", name="cwd")
    key("sometimes", '"stateless" or "stateful" or "shared"', "sometimes", name="mode")
    key(-1, "-1", name="timeout")
    key("soon", "soon", name="timeout")
    key(0, "0", name="timeout")
    key(True, "expected", name="idle_timeout")
    key("forever", '"job" or "session"', name="workspace")
    key("many", "warm", name="warm")
    key(100000, "100000", name="warm")
    key("jail", '"basic" or "confined" or "user"', "jail", name="isolation")
    key({"memroy": "1GiB"}, "did you mean `memory`?", name="isolation")
    key("all", '"append"', "all", name="files")
    key("sse", '"stdio"', name="type")
    key("mine", "mine", name="profile")
    key("never", '"off"', name="heal")
    key("yes", "expected true or false", name="disabled")
    key(["MCPO_API_KEY"], "a secret of Pontoon's own", name="inherit_env")
    key("http://127.0.0.1/mcp", "not supported by this version", "ws://", '"disabled": true', name="url", command=None)
    key("ftp://127.0.0.1", "ftp", name="url", command=None)
    key("ws://me:pw@127.0.0.1:1", "no user name or password", "headers", name="url", command=None)


def variables() -> None:
    variable("MCPO_TIMEOUT", "soon", "soon")
    variable("MCPO_TIMEOUT", "0", "0")
    variable("MCPO_LISTEN", "8080", "8080")
    variable("MCPO_LISTEN", "localhost:99999", "99999")
    variable("MCPO_MAX_CONCURENT", "4", "did you mean `MCPO_MAX_CONCURRENT`?", code=0)
    variable("MCPO_MAX_CONCURRENT", "0", "0")
    variable("MCPO_MAX_BODY", "lots", "lots")
    variable("MCPO_MEMORY_BUDGET", "1", "1")
    variable("MCPO_HOT_RELOAD", "maybe", "maybe")
    variable("MCPO_LOG_LEVEL", "LOUD", "LOUD", "DEBUG")
    variable("MCPO_API_KEYS", "bob", "alice=KEY1")
    variable("MCPO_API_KEY", "1234", "easily guessed", code=0)
    variable("MCPO_API_KEY_FILE", "gone-7", "gone-7", "No such file")
    variable("MCPO_LINK_SECRET", "short", "16")
    variable("MCPO_TRUSTED_PROXIES", "nginx", "nginx")
    variable("MCPO_BASE_URL", "chat.example.org", "chat.example.org", "https://")
    variable("MCPO_SESSION_STORE", "redis", "not supported by this version")
    variable("MCPO_JOBS_DIR", "/", "root of all files", "folder of its own")
    variable("MCPO_JOBS_DIR", "f", "is a file and no folder", beside={"f": b""})
    # A log never keeps the bridge from running, so this is a warning.
    variable("MCPO_LOG_DIR", "f", "is a file and no folder", code=0, beside={"f": b""})
    variable("MCPO_FILE_EXPIRY", "never", "never")
    variable("MCPO_USER_HEADER", "no header", "no header")
    row("jobs folder that is a file", "serve --port 0", 1, "MCPO_JOBS_DIR", "is a file and no folder", env={"MCPO_JOBS_DIR": "f"}, beside={"f": b""})


def started() -> None:
    """Servers that do not work, as `tools` tells it."""

    def server(name: str, command: str, args: list[str], *words: str, **more) -> None:
        file = servers(a={"command": command, "args": args, "timeout": 2})
        row(name, "tools a", 1, "the server `a`", *words, file=file, **more)

    server("cat as server", "cat", [], "sends back what it is sent", "no MCP server")
    server("a program that ends", "echo", ["hello"], "ended during the handshake", "exited with code 0", unsaid=["modern era"])
    server("a crash", "sh", ["-c", "echo boom >&2; exit 3"], "code 3", "last words: boom", unsaid=["modern era"])
    server("a silent program", "sleep", ["600"], "did not answer `initialize` within 2 s", "standard input and output")
    server("a server for HTTP", "sh", ["-c", "echo 'running on http://127.0.0.1:8000 (^C)' >&2; sleep 600"],
           "within 2 s", "listens at http://127.0.0.1:8000,", "--transport stdio")
    server("a missing interpreter", "./s", [], "names the interpreter", "/gone-7/python", "install it", beside={"s": b"#!/gone-7/python -u\n"})
    server("Windows line ends", "./s", [], "interpreter", "Unix line ends", beside={"s": b"#!/bin/sh\r\nexit 0\r\n"})
    server("no program at all", "./s", [], "neither a program for this machine nor a script", "#!", beside={"s": b"\x00\x01\x02 no program"})
    server("a missing program", "gone-7", [], "`gone-7` was not found; looked in")
    server("another line than JSON", "sh", ["-c", "echo Hello; read x; exit 1"], "code 1")
    row("mistakes of others are not told", "tools a", 0, "greet", unsaid=["gone-7", "mcpServers.b"],
        file=servers(a={"command": "{pontoon}", "args": ["demo"]}, b={"command": "gone-7", "mode": "sometimes"}))
    row("call: mistakes of others are not told", "call a greet name=Ada", 0, "Hello, Ada", unsaid=["gone-7", "mcpServers.b"],
        file=servers(a={"command": "{pontoon}", "args": ["demo"]}, b={"command": "gone-7"}))
    row("an application that is away", "tools a", 1, "127.0.0.1:{free}", file=servers(a={"url": "ws://127.0.0.1:{free}", "connect_wait": 1}))


class Place:
    """Where mistakes are made: a port that is taken and one that is free."""

    def __init__(self, pontoon: pathlib.Path):
        self.pontoon = pontoon
        self.taken = socket.create_server(("127.0.0.1", 0))
        # Bound and not listening: nobody else gets it, and nothing answers there.
        self.free = socket.socket()
        self.free.bind(("127.0.0.1", 0))

    def fill(self, text: str) -> str:
        for name, value in [
            ("taken", self.taken.getsockname()[1]),
            ("free", self.free.getsockname()[1]),
            ("pontoon", self.pontoon),
        ]:
            text = text.replace("{" + name + "}", str(value))
        return text


def left_running(tag: str) -> list[str]:
    """Processes that were started for a mistake and live."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if tag.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def make(mistake: Mistake, place: Place, folder: pathlib.Path) -> dict[str, str]:
    """Lays out the files of a mistake, and gives its environment."""
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    work = folder / "work"
    work.mkdir()
    if mistake.file is not None:
        (work / FILE).write_text(place.fill(json.dumps(mistake.file)))
    for name, content in mistake.beside.items():
        if content is None:
            (work / name).mkdir()
            continue
        (work / name).write_bytes(content)
        if not name.endswith(".json"):
            (work / name).chmod(0o755 if content else 0o644)
    return {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "PATH": os.environ["PATH"],
        "MCPO_JOBS_DIR": str(folder / "jobs"),
        "MISTAKE_TAG": uuid.uuid4().hex,
    } | mistake.env


def faults(mistake: Mistake, place: Place, shows: bool) -> list[str]:
    """What is wrong with what is said of a mistake."""
    with tempfile.TemporaryDirectory(prefix="m-") as folder:
        folder = pathlib.Path(folder)
        env = make(mistake, place, folder)
        entry = mistake.typed and place.fill(mistake.typed).split(" ")
        # Servers see the tag as well.
        if mistake.file is not None and mistake.typed.split(" ")[0] in ("tools", "call"):
            text = (folder / "work" / FILE).read_text()
            written = json.loads(text)
            for server in written["mcpServers"].values():
                if "command" in server:
                    server.setdefault("env", {})["MISTAKE_TAG"] = env["MISTAKE_TAG"]
            (folder / "work" / FILE).write_text(json.dumps(written))
        process = subprocess.Popen(
            [str(place.pontoon), *entry],
            cwd=folder / "work", env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        try:
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            out, err = process.communicate()
            return [f"did not end within {PATIENCE_SECONDS} s: {out}{err}"]
        said = out + err
        if shows:
            print(f"--- {mistake.name}: pontoon {mistake.typed}\n{said.rstrip()}\n=> {process.returncode}\n", flush=True)
        found = []
        if process.returncode != mistake.code:
            found.append(f"exit code {process.returncode} in place of {mistake.code}")
        found += [f"does not say {word!r}" for word in map(place.fill, mistake.words) if word not in said]
        found += [f"says {word!r}" for word in mistake.unsaid if word in said]
        found += [f"says {word!r}" for word in ("panicked", "\x1b", "RUST_BACKTRACE") if word in said]
        left = [str(path) for path in (folder / "tmp").iterdir()]
        found += [f"left {path}" for path in left]
        found += [f"left running: {command}" for command in left_running(env["MISTAKE_TAG"])]
        return found and [*found, f"it said:\n{said}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pontoon", type=pathlib.Path, required=True)
    parser.add_argument("--only", help="those whose names have this")
    parser.add_argument("--show", action="store_true", help="print every message")
    arguments = parser.parse_args()
    for make_rows in (typed, files, variables, started):
        make_rows()
    assert len(ROWS) >= 103, f"only {len(ROWS)} mistakes"
    chosen = [it for it in ROWS if not arguments.only or arguments.only in it.name]
    place = Place(arguments.pontoon.resolve())
    passed = failed = 0
    with ThreadPoolExecutor(1 if arguments.show else 4) as pool:
        results = pool.map(lambda it: faults(it, place, arguments.show), chosen)
        for mistake, found in zip(chosen, results, strict=True):
            passed, failed = passed + (not found), failed + bool(found)
            if found:
                print(f"FAILED {mistake.name}: pontoon {mistake.typed}\n  " + "\n  ".join(found), flush=True)
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0 or not chosen)


if __name__ == "__main__":
    sys.exit(main())
