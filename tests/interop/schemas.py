#!/usr/bin/env python3
"""What faults of tools cost in real clients, and that nothing is lost through the bridge.

    tests/interop/schemas.py --pontoon target/debug/pontoon                   SDKs and Open WebUI
    tests/interop/schemas.py --pontoon target/debug/pontoon --clients claude  Claude Code
    tests/interop/schemas.py --pontoon target/debug/pontoon --clients all --table docs/schema-losses.md
                                                                              writes the page anew, with what is seen through the bridge

First each client uses a server of its own for each fixture of crates/schema/fixtures, which has a good tool besides: what it loses is
compared with its profile in crates/schema/profiles and with the table in docs/schema-losses.md, so that neither can be wrong for
long. Then it uses one server that has the tools of all fixtures, through `pontoon serve` and, Claude Code, through `pontoon connect`:
it sees all of them, and calls them. Ends with `N passed, N failed`.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import typing
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
SERVER = HERE / "python" / "schema_server.py"
FIXTURES = REPOSITORY / "crates" / "schema" / "fixtures"
PROFILES = REPOSITORY / "crates" / "schema" / "profiles"
TABLE = REPOSITORY / "docs" / "schema-losses.md"
sys.path += [str(HERE / "python"), str(REPOSITORY / "tests" / "claude")]

# From the best to the worst. What the API refuses is lost with all else in the request.
FINE, CALL, TOOL, SERVER_LOST, REFUSED = "fine", "error at call", "tool lost", "all tools lost", "request refused"
OUTCOMES = [FINE, CALL, TOOL, SERVER_LOST, REFUSED]
# These are about lists, or cannot be in a list with others.
APART = ["S025-too-many", "S026-order", "S029-pages"]
# A client that waits longer for pages that never end would wait for ever. What has to work has its time.
SECONDS = 15
PATIENCE_SECONDS = 90
RUN_SECONDS = 300


class Server(typing.NamedTuple):
    """A server, the names of its broken tools as clients know them, and what to call."""

    url: str
    tools: list
    calls: dict[str, dict]
    seconds: int = SECONDS


# What a client says of each server: {"tools": […], "calls": {…}} or {"error": …}; of Claude Code also {"refused": …}.
Told = dict[str, dict]


def python(venv: str, script: str) -> list:
    return [CACHE / venv / "bin" / "python", HERE / "python" / script]


def node(sdk: str) -> list:
    return [CACHE / "node22" / "bin" / "node", HERE / "node" / "schemas.mjs", sdk]


def run_program(command: list, servers: dict[str, Server]) -> Told:
    asked = {
        name: {"url": server.url, "calls": server.calls, "seconds": server.seconds} for name, server in servers.items()
    }
    environment = os.environ | {"PONTOON_TEST_CACHE": str(CACHE), "PYTHONDONTWRITEBYTECODE": "1"}
    # SDKs say on standard error what they leave out.
    ended = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, env=environment, timeout=RUN_SECONDS)
    if ended.returncode != 0:
        sys.exit(f"{command[-1]} ended with status {ended.returncode}:\n{ended.stderr[-2000:]}")
    return json.loads(ended.stdout)


class Claude:
    """A version of Claude Code, with these variables, before a model that is a script, as tests/src/claude.rs has it."""

    def __init__(self, version: str, **variables: str) -> None:
        self.program = CACHE / "claude" / "bin" / f"claude-{version}"
        self.variables = variables

    def __call__(self, servers: dict[str, Server]) -> Told:
        return self.look_at({name: {"type": "http", "url": server.url} for name, server in servers.items()}, servers)

    def look_at(self, settings: dict[str, dict], servers: dict[str, Server]) -> Told:
        """All servers in one conversation, in which the model calls one tool after the other."""
        # The CLI takes ids that end in a number after `_` for parts of one.
        calls = [
            {"id": f"toolu_{re.sub('[^A-Za-z0-9]', '', name)}x{at}x", "tool": in_claude(name, tool), "input": arguments}
            for name, server in servers.items()
            for at, (tool, arguments) in enumerate(server.calls.items())
        ]
        with tempfile.TemporaryDirectory(prefix="pc") as home, messages_api({"any_schema": True, "turns": [calls, "Done."]}) as url:
            home = pathlib.Path(home)
            config = home / "mcp.json"
            named = {claude_name(name): setting | {"alwaysLoad": True} for name, setting in settings.items()}
            config.write_text(json.dumps({"mcpServers": named}))
            command = [self.program, "-p", "go", "--output-format", "stream-json", "--verbose", "--strict-mcp-config"]
            command += ["--mcp-config", config, "--allowedTools", ",".join(f"mcp__{name}" for name in named)]
            options = {"cwd": home, "env": environment(home, url) | self.variables, "stdin": subprocess.DEVNULL, "timeout": RUN_SECONDS}
            ended = subprocess.run(command, capture_output=True, text=True, **options)
            if ended.returncode != 0:
                sys.exit(f"{self.program.name} ended with status {ended.returncode}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
            with urllib.request.urlopen(f"{url}/_fake/requests") as answer:
                requests = [it for it in json.load(answer) if it["path"].split("?")[0] == "/v1/messages" and not it["side"]]
        return {name: told_of(name, server, calls, requests) for name, server in servers.items()}


def environment(home: pathlib.Path, api: str) -> dict[str, str]:
    """All that Claude Code has: nothing of the user's, and nothing leaves this machine."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "ANTHROPIC_API_KEY": "fake-key",
        "ANTHROPIC_BASE_URL": api,
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def claude_name(text: str) -> str:
    """A name as Claude Code writes it; JavaScript counts some letters as two."""
    return re.sub("[^A-Za-z0-9_-]", lambda it: "_" * (len(it[0].encode("utf-16-le")) // 2), text)


def in_claude(server: str, tool: str) -> str:
    return f"mcp__{claude_name(server)}__{claude_name(tool)}"


def told_of(name: str, server: Server, calls: list[dict], requests: list[dict]) -> dict:
    """What the model was told of one server, and what became of its calls."""
    import messages_api as api

    before = f"mcp__{claude_name(name)}__"
    offered = [tool for tool in requests[0]["body"]["tools"] if tool["name"].startswith(before)]
    results = {
        result["tool_use_id"]: result
        for request in requests
        for message in request["body"]["messages"]
        for result in api.tool_results(message)
    }
    by_tool = {call["tool"]: results.get(call["id"], {"is_error": True, "content": "no result"}) for call in calls}
    told = {}
    for tool in server.calls:
        result = by_tool[in_claude(name, tool)]
        text = api.text_of(result["content"])
        told[tool] = {"error": text} if result.get("is_error") else {"text": text}
    tools = [{"name": tool["name"].removeprefix(before), "inputSchema": tool["input_schema"]} for tool in offered]
    return {"tools": tools, "calls": told, "refused": api.tools_fault(offered)}


@contextlib.contextmanager
def messages_api(script: dict):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(script, file)
        file.flush()
        program = REPOSITORY / "tests" / "claude" / "messages_api.py"
        with started([sys.executable, program, "--script", file.name]) as process:
            yield process.stdout.readline().split()[1]


@contextlib.contextmanager
def started(command: list, **options):
    """A program until the end, with its output to be read."""
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


class Client(typing.NamedTuple):
    """A client, its column in the table, its profile unless it is an older version, and what has to be installed for it."""

    title: str
    kind: str
    profile: str | None
    run: typing.Callable[[dict[str, Server]], Told]
    installs: list[str]
    # Whether it speaks the protocol 2026-07-28 with servers that do.
    is_modern: bool = True


PYTHON_1 = python("py-mcp1", "schemas_client.py")
PYTHON_2 = python("py-mcp2", "schemas_client.py")
OPEN_WEBUI = python("py-mcp2", "open_webui.py")
CLIENTS = [
    Client("Claude Code 2.1.325", "claude", "claude-code", Claude("2.1.325"), ["node22", "claude", "py-mcp1"]),
    Client("Claude Code 2.0.0", "claude", None, Claude("2.0.0"), ["node22", "claude", "py-mcp1"], is_modern=False),
    Client("TypeScript SDK 1.32", "sdk", "ts-sdk-1", functools.partial(run_program, node("v1")), ["node22", "ts-v1"], is_modern=False),
    Client("TypeScript SDK 2.4", "sdk", "ts-sdk-2", functools.partial(run_program, node("v2")), ["node22", "ts-v2"]),
    Client("Python SDK 1.30", "sdk", "python-sdk-1", functools.partial(run_program, PYTHON_1), ["py-mcp1"], is_modern=False),
    Client("Python SDK 2.3", "sdk", "python-sdk-2", functools.partial(run_program, PYTHON_2), ["py-mcp2"]),
    Client("Open WebUI 0.12", "sdk", "open-webui", functools.partial(run_program, OPEN_WEBUI), ["py-mcp2", "open-webui"]),
]


@functools.cache
def fixtures() -> dict[str, dict]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FIXTURES.glob("*.json"))}


def forms_of(name: str) -> dict[str, list]:
    """The words for the server, and the tools that they stand for."""
    fixture = fixtures()[name]
    forms = {name: fixture["broken"]} | {f"{name}={at}": tool for at, tool in enumerate(fixture.get("also", []))}
    return {word: tools if isinstance(tools, list) else [tools] for word, tools in forms.items()}


def name_of(tool: dict) -> str | None:
    """The name by which a tool can be called."""
    return tool["name"] if isinstance(tool.get("name"), str) and tool["name"] else None


def straight(url: str, healthy: bool) -> dict[str, Server]:
    """Every form of every fixture as a server of its own, or every healthy one."""
    servers = {}
    for name, fixture in fixtures().items():
        healthy_tools = fixture["healthy"] if isinstance(fixture["healthy"], list) else [fixture["healthy"]]
        forms = {f"{name}=healthy": healthy_tools} if healthy else forms_of(name)
        for word, tools in forms.items():
            # What the forms of a fault are given matters to none of these clients.
            arguments = {"good": {"text": "hi"}} | {tool: fixture["arguments"] for tool in map(name_of, tools[:3]) if tool}
            servers[word] = Server(f"{url}/{urllib.parse.quote(word)}", tools, arguments)
    return servers


def outcome(server: Server, told: dict) -> str:
    """What a client made of a server that has the tool `good` and these."""
    if "error" in told or not any(tool["name"] == "good" for tool in told["tools"]):
        return SERVER_LOST
    if len(told["tools"]) < len(server.tools) + 1:
        return TOOL
    if told.get("refused"):
        return REFUSED
    failed = [tool for tool in told["calls"].values() if "error" in tool]
    return CALL if failed else FINE


# By fault, what it does in the protocols with `initialize`, and in that of 2026-07-28 or the same again.
Outcomes = dict[str, tuple[str, str]]


def measured(client: Client, url: str) -> Outcomes:
    """The worst that one of the forms of each fault did."""
    eras = []
    for address in [url, f"{url}/modern"] if client.is_modern else [url]:
        servers, worst = straight(address, healthy=False), {}
        told = client.run(servers)
        for word, server in servers.items():
            fault = fixtures()[word.partition("=")[0]]["fault"]
            worst[fault] = max(worst.get(fault, FINE), outcome(server, told[word]), key=OUTCOMES.index)
        eras.append(worst)
    return {fault: (was, eras[-1][fault]) for fault, was in eras[0].items()}


def cell(eras: tuple[str, str]) -> str:
    legacy, modern = eras
    return legacy if legacy == modern else f"{legacy}; {modern} in 2026-07-28"


class Report:
    def __init__(self) -> None:
        self.passed = self.failed = 0

    def check(self, what: str, complaints: list[str]) -> None:
        for complaint in complaints:
            print(f"FAIL {what}: {complaint}", flush=True)
        if not complaints:
            print(f"ok   {what}", flush=True)
        self.passed += not complaints
        self.failed += len(complaints)


def against_profile(client: Client, outcomes: Outcomes) -> list[str]:
    """Where the profile says something else. What it minds without losing anything is its own to say."""
    profile = json.loads((PROFILES / f"{client.profile}.json").read_text())
    complaints = []
    for fault, eras in outcomes.items():
        was = max(eras, key=OUTCOMES.index)
        said = next((key for key in ("loses_server", "loses_tool", "minds") if fault in profile.get(key, [])), "nothing")
        right = {SERVER_LOST: "loses_server", REFUSED: "loses_server", TOOL: "loses_tool", CALL: "minds"}.get(was)
        if said != right and not (was == FINE and said in ("minds", "nothing")):
            complaints.append(f"{fault}: {was}, but the profile says {said}")
    return complaints


def against_table(client: Client, outcomes: Outcomes) -> list[str]:
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in TABLE.read_text().splitlines() if line.startswith("|")]
    if client.title not in rows[0]:
        return [f"{TABLE.name} has no column for it"]
    at = rows[0].index(client.title)
    told = {row[0].partition(" ")[0].strip("`"): row[at] for row in rows[2:]}
    return [
        f"{fault}: {cell(eras)}, but {TABLE.name} says {told.get(fault, FINE)}"
        for fault, eras in outcomes.items()
        if told.get(fault, FINE) != cell(eras)
    ]


def meanings() -> dict[str, str]:
    """What each fault is, from the source that all reports have it from."""
    text = (REPOSITORY / "crates" / "schema" / "src" / "fault.rs").read_text()
    found = re.findall(r'^    \w+ (S\d+) "([a-z-]+)" \w+ \{\n        "((?:[^"\\]|\\.)*)"', text, re.M)
    return {f"{code}/{name}": json.loads(f'"{meaning}"') for code, name, meaning in found}


def through_words(shown: int, titles: list[str]) -> str:
    """What was seen through the bridge, for the page."""
    connected = [title for title in titles if title.startswith("Claude Code")]
    also = f", and {' and '.join(connected)} by `pontoon connect` as well" if connected else ""
    return f"""
Through the bridge nothing of this is lost: by `pontoon serve`{also}, each of these clients was shown all {shown} tools
that can be called of all fixtures together, called those that have arguments in their fixture, and the server got what it takes.
"""


def write_table(path: pathlib.Path, columns: dict[str, Outcomes], through: str) -> None:
    """Writes what is lost, and what was seen through the bridge."""
    faults, said = list(next(iter(columns.values()))), meanings()
    lost = [fault for fault in faults if any(cell(outcomes[fault]) != FINE for outcomes in columns.values())]
    rows = [["Fault", *columns], ["---"] * (len(columns) + 1)]
    for fault in lost:
        rows.append([f"`{fault}` {said[fault]}", *(cell(outcomes[fault]) for outcomes in columns.values())])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    fine = ", ".join(f"`{fault}`" for fault in faults if fault not in lost)
    path.write_text(
        f"""# What faulty tools cost without the bridge

Measured with the real clients, each before a server that has one good tool and one with the fault; where a fault has several
forms, by the worst of them.
`tests/interop/schemas.py` wrote this page, and fails where it is no longer so.

- *{TOOL}*: the client leaves out this tool.
- *{SERVER_LOST}*: the client has none of the server's tools, the good one neither.
- *{REFUSED}*: the client sends the tool to its model, whose service refuses the whole request, with all tools of all servers. The
  service is a script here, which refuses what draft 2020-12 and the published rules of the Messages API refuse. Open WebUI and
  programs that use an SDK pass tools on as well; what becomes of them then depends on the service.
- *{CALL}*: the tool is there, and its calls fail in the client.
- *in 2026-07-28*: with a server of this protocol, where that makes a difference. Clients that speak it also speak it with the bridge.

{table}

None of these clients minds: {fine}.
{through}"""
    )


class Bridge:
    """The bridge before one server with the tools of all fixtures, and before those that stand alone."""

    def __init__(self, program: pathlib.Path, directory: pathlib.Path) -> None:
        self.program, self.directory = program, directory
        words = [word for name in fixtures() if name not in APART for word in forms_of(name)]
        self.words = {"all": words} | {name: [name] for name in APART}

    @contextlib.contextmanager
    def serve(self):
        servers = {
            name: {"command": sys.executable, "args": ["-IS", str(SERVER), *words], "mode": "stateful"} for name, words in self.words.items()
        }
        config = self.directory / "servers.json"
        config.write_text(json.dumps({"mcpServers": servers}))
        state = {"MCPO_STATE_DIR": str(self.directory / "state"), "MCPO_JOBS_DIR": str(self.directory / "jobs")}
        log = (self.directory / "bridge.log").open("w")
        command = [self.program, "serve", "--config", config, "--listen", "127.0.0.1:0"]
        with started(command, cwd=self.directory, env=os.environ | state, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
            for line in process.stdout:
                log.write(line)
                if address := re.search(r"http://127\.0\.0\.1:[1-9]\d*", line):
                    break
            else:
                sys.exit("the bridge did not say where it listens")
            threading.Thread(target=lambda: [log.write(line) for line in process.stdout], daemon=True).start()
            yield {name: f"{address[0]}/mcp/{name}" for name in self.words}

    @contextlib.contextmanager
    def connect(self):
        """How Claude Code starts the bridge before an application that has all tools."""
        with started([CACHE / "py-mcp1" / "bin" / "python", SERVER, "--ws", *self.words["all"]]) as app:
            yield {"command": str(self.program), "args": ["connect", app.stdout.readline().strip()]}

    def originals(self, name: str) -> list[tuple[str, dict]]:
        """The name and the arguments of every tool that clients should see, in the order of the server."""
        seen, tools = set(), [("good", {"text": "hi"})]
        for word in self.words[name]:
            stem, _, form = word.partition("=")
            for tool in forms_of(stem)[word]:
                tools.append((name_of(tool), {} if form else fixtures()[stem]["arguments"]))
        return [(tool, arguments) for tool, arguments in tools if tool and not (tool in seen or seen.add(tool))]

    def learnt(self, name: str, url: str, shown: list[dict]) -> Server:
        """A server with the names that the bridge shows, which come in the order of the originals."""
        calls = {}
        for tool, (_, arguments) in zip(shown, self.originals(name)):
            # The forms of a fault have arguments of their own; to be seen is enough for those.
            if arguments:
                calls[tool["name"]] = shown_arguments(tool, arguments)
        return Server(url, [tool["name"] for tool in shown], calls, PATIENCE_SECONDS)

    def expected(self, name: str, server: Server) -> dict[str, dict]:
        """The arguments with which the server is called: with its own names, fitted to what it takes."""
        fitted = {}
        for fixture in fixtures().values():
            if "fitted" in fixture:
                fitted[fixture["broken"]["name"]] = fixture["fitted"]
        originals = zip(server.tools, self.originals(name))
        return {shown: fitted.get(original, arguments) for shown, (original, arguments) in originals}


def shown_arguments(tool: dict, arguments: dict) -> dict:
    """Arguments with the names that are shown, which stand where the original ones stood."""
    shown = list(tool["inputSchema"].get("properties", {}))
    renamed = [key for key in shown if key not in arguments]
    return {key if key in shown or not renamed else renamed.pop(0): value for key, value in arguments.items()}


def listed(url: str) -> list[dict]:
    """The tools that are at this address, read without an SDK."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

    def ask(message: dict) -> tuple[dict, str | None]:
        request = urllib.request.Request(url, json.dumps({"jsonrpc": "2.0", **message}).encode(), headers)
        with urllib.request.urlopen(request) as answer:
            body = answer.read().decode()
            lines = [line[5:] for line in body.splitlines() if line.startswith("data:")] or [body]
            return json.loads(lines[-1] or "null"), answer.headers.get("mcp-session-id")

    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "interop-schemas", "version": "1"}}
    _, session = ask({"id": 1, "method": "initialize", "params": hello})
    headers |= {"mcp-protocol-version": "2025-06-18"} | ({"mcp-session-id": session} if session else {})
    ask({"method": "notifications/initialized"})
    tools, cursor = [], None
    while True:
        answer, _ = ask({"id": 2, "method": "tools/list", "params": {"cursor": cursor} if cursor else {}})
        tools += answer["result"]["tools"]
        if not (cursor := answer["result"].get("nextCursor")):
            return tools


def through_bridge(bridge: Bridge, servers: dict[str, Server], told: Told) -> list[str]:
    complaints = []
    for name, server in servers.items():
        if "error" in told[name]:
            complaints.append(f"no tools of {name}: {told[name]['error'][:300]}")
            continue
        if told[name].get("refused"):
            complaints.append(f"{name}: {told[name]['refused']}")
        seen = [tool["name"] for tool in told[name]["tools"]]
        if len(seen) != len(server.tools):
            complaints.append(f"{name}: {len(seen)} of {len(server.tools)} tools, not {sorted(set(server.tools) - set(seen))}")
        expected = bridge.expected(name, server)
        for tool in server.calls:
            call = told[name]["calls"].get(tool, {"error": "not called"})
            if "error" in call:
                complaints.append(f"{tool}: {call['error'][:300]}")
            elif not tool.startswith(("s010_old_dialect_output", "s015_")) and json.loads(call["text"]) != expected[tool]:
                complaints.append(f"{tool} was called with {call['text']}, not {expected[tool]}")
    return complaints


def check_bridge(bridge: Bridge, clients: list[Client], report: Report) -> int:
    """Looks at all tools through the bridge. How many there are."""
    with bridge.serve() as addresses:
        servers = {}
        for name, url in addresses.items():
            shown, originals = listed(url), bridge.originals(name)
            if len(shown) == len(originals):
                servers[name], complaints = bridge.learnt(name, url, shown), []
            else:
                names = [tool.get("name") for tool in shown]
                missing = [tool for tool, _ in originals if tool not in names]
                complaints = [f"{len(shown)} tools, not {len(originals)}; perhaps not {missing}"]
            report.check(f"the bridge shows the tools of {name}", complaints)
        for client in clients:
            report.check(f"{client.title}: all tools by `serve`", through_bridge(bridge, servers, client.run(servers)))
    for client in clients:
        if client.kind == "claude" and "all" in servers:
            with bridge.connect() as setting:
                of_all = {"all": servers["all"]}
                told = client.run.look_at({"all": setting}, of_all)
                report.check(f"{client.title}: all tools by `connect`", through_bridge(bridge, of_all, told))
    return sum(len(server.tools) for server in servers.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--clients", choices=["sdk", "claude", "all"], default="sdk")
    parser.add_argument("--table", type=pathlib.Path, help="write what is lost to this file; takes all clients and the bridge")
    options = parser.parse_args()
    if options.table and (options.clients != "all" or not options.pontoon):
        parser.error("--table takes --clients all and --pontoon")
    clients = [client for client in CLIENTS if options.clients in ("all", client.kind)]
    installs = sorted({install for client in clients for install in client.installs})
    subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *installs], check=True)

    report, columns = Report(), {}
    with started([sys.executable, "-IS", SERVER, "--http"]) as process:
        url = process.stdout.readline().strip()
        for client in clients:
            servers = straight(url, healthy=True)
            told = client.run(servers)
            sick = {word: outcome(server, told[word]) for word, server in servers.items()}
            report.check(f"{client.title}: healthy tools", [f"{word}: {was} {told[word]}" for word, was in sick.items() if was != FINE])
            columns[client.title] = outcomes = measured(client, url)
            if client.profile:
                report.check(f"{client.title}: the profile {client.profile} is right", against_profile(client, outcomes))
            if not options.table:
                report.check(f"{client.title}: the table is right", against_table(client, outcomes))
    failed, shown = report.failed, 0
    if options.pontoon:
        with tempfile.TemporaryDirectory(prefix="pontoon-schemas-") as directory:
            shown = check_bridge(Bridge(options.pontoon, pathlib.Path(directory)), clients, report)
    if options.table and report.failed == failed:
        write_table(options.table, columns, through_words(shown, list(columns)))
    elif options.table:
        print(f"{options.table} was not written: something is lost through the bridge")
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
