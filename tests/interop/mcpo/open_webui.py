#!/usr/bin/env python3
"""Open WebUI's own code before the documents of the bridge: every tool and every parameter is there, and calls arrive.

    tests/interop/mcpo/open_webui.py --pontoon target/debug/pontoon
    tests/interop/mcpo/open_webui.py                 what it loses with mcpo, which only shows that this program sees losses

The code is `open_webui_tools.py`'s, out of the wheel of Open WebUI 0.12.4. It is given every server of `golden.py`, those with which
mcpo does not load included, PowerPoint, and a server whose prompts and resources are offered as well, at both addresses, and the one
document of all servers, and one whose answer is a page. What a server lists, asked without a bridge, is what a model has to see: each tool, each
parameter with the types and the values that it may have, at every depth that is described in place, what is required, and what it is
for. Then it calls the tools of the cases, whose arguments have to arrive as they were. Ends with `N passed, N failed`.
"""

import argparse
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import asked  # noqa: E402
import bridges  # noqa: E402
import cases_server  # noqa: E402
from golden import CALLS_OF_CRASHES  # noqa: E402

INSTALLS = [*bridges.INSTALLS, "office-powerpoint", "open-webui", "open-webui-client"]
SECONDS = 120
ALL_TYPES = {"string", "number", "integer", "boolean", "object", "array", "null"}


def operation_of(tool: str) -> str:
    """How mcpo calls a tool, and so Open WebUI; services of models take no other letters than these."""
    return re.sub(r"\W", "_", f"tool_{tool}_post", flags=re.ASCII)


def operations_of(tools: list[str]) -> dict[str, str]:
    """The same of all tools of a document, in which the second of one name is numbered."""
    found = {}
    for tool in tools:
        name, count = operation_of(tool), sum(operation_of(other) == operation_of(tool) for other in found)
        found[tool] = f"{name}_{count + 1}" if count else name
    return found


def more_servers() -> dict:
    """What is not compared with mcpo."""
    everything = bridges.servers("pontoon", HERE)["everything"]
    return {
        "powerpoint": {"command": str(bridges.CACHE / "office-powerpoint/bin/ppt_mcp_server"), "args": [], "mode": "stateful"},
        "besides": everything | {"rest": ["prompts", "resources"]},
        "paints": bridges.cases("paints") | {"rest": ["html"]},
        # In one document these two are alike but for what stands between their words.
        "x": bridges.cases("called", "y_z", "string"),
        "x_y": bridges.cases("called", "z", "integer"),
    }


def besides(prompts: list[dict]) -> list[dict]:
    """What is offered with prompts and resources, as tools would be."""
    empty = {"type": "object", "properties": {}}
    uri = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
    names = {"prompts": empty, "resources": empty, "resources/templates": empty, "resources/read": uri}
    found = [{"name": name, "inputSchema": schema} for name, schema in names.items()]
    for prompt in prompts:
        arguments = prompt.get("arguments", [])
        said = [(it["name"], {"description": it["description"]} if "description" in it else {}) for it in arguments]
        schema = {"type": "object", "properties": {name: {"type": "string"} | words for name, words in said}}
        schema["required"] = [it["name"] for it in arguments if it.get("required")]
        found.append({"name": f"prompts/{prompt['name']}", "description": prompt["description"], "inputSchema": schema})
    return found


def tools_of(server: dict, folder: pathlib.Path) -> list[dict]:
    """What a server lists, asked over stdio without a bridge, and its prompts and resources if they are offered."""
    with started(server, folder) as process:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "interop", "version": "1"}}
        ask(process, "initialize", hello, 1)
        say(process, {"method": "notifications/initialized"})
        listed, cursor = [], None
        while True:
            page = ask(process, "tools/list", {"cursor": cursor} if cursor else {}, len(listed) + 2)
            listed += page["tools"]
            if not (cursor := page.get("nextCursor")):
                hidden = server.get("disabledTools", [])
                listed = [tool for tool in listed if tool["name"] not in hidden]
                if "prompts" in server.get("rest", []):
                    listed += besides(ask(process, "prompts/list", {}, -1)["prompts"])
                return listed


@contextlib.contextmanager
def started(server: dict, folder: pathlib.Path):
    environment = {**dict(bridges.os.environ), **{k: v.replace("${MCPO_WORKDIR}", str(folder)) for k, v in server.get("env", {}).items()}}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([server["command"], *server["args"]], cwd=folder, env=environment, text=True, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def say(process: subprocess.Popen, message: dict) -> None:
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()


def ask(process: subprocess.Popen, method: str, params: dict, id: int) -> dict:
    say(process, {"id": id, "method": method, "params": params})
    for line in process.stdout:
        message = json.loads(line)
        if message.get("id") == id and "method" not in message:
            return message["result"]
    sys.exit(f"{process.args} ended without an answer to {method}")


class Schema:
    """A schema and the document that its references are in, read for what it allows."""

    def __init__(self, schema: object, root: dict, depth: int = 0, within: tuple = ()) -> None:
        self.root, self.depth, self.within = root, depth, within
        # Inside of itself a document repeats a schema as often as it likes.
        self.is_again = False
        self.schema = schema if isinstance(schema, dict) else {}
        self.refuses_all = schema is False
        if "$ref" in self.schema:
            self.is_again = self.schema["$ref"] in within
            self.within = (*within, self.schema["$ref"])
            found = root
            for part in self.schema["$ref"].removeprefix("#/").split("/"):
                found = found.get(part, {})
            self.schema = {**found, **{key: value for key, value in self.schema.items() if key != "$ref"}}

    def inner(self, schema: object) -> "Schema":
        return Schema(schema, self.root, self.depth + 1, self.within)

    def alternatives(self) -> list["Schema"]:
        return [self.inner(it) for key in ("anyOf", "oneOf") for it in self.schema.get(key, [])]

    def types(self) -> set[str]:
        if self.depth > 12:
            return set(ALL_TYPES)
        types = self.schema.get("type")
        own = set(ALL_TYPES) if types is None else {types} if isinstance(types, str) else set(types)
        if self.schema.get("nullable"):
            own.add("null")
        if (values := self.own_values()) is not None:
            own &= {type_of(value) for value in values} | ({"number"} if any(type_of(value) == "integer" for value in values) else set())
        if alternatives := self.alternatives():
            own &= set().union(*(it.types() for it in alternatives))
        for part in self.schema.get("allOf", []):
            own &= self.inner(part).types()
        if types is None and own == ALL_TYPES and (self.schema.get("properties") or self.schema.get("allOf")):
            own = {"object"}
        return own | ({"integer"} if "number" in own else set())

    def own_values(self) -> list | None:
        return [self.schema["const"]] if "const" in self.schema else self.schema.get("enum")

    def values(self) -> set[str] | None:
        """The values that it may have, each as JSON, or none where any may be."""
        if (own := self.own_values()) is not None:
            return {json.dumps(value) for value in own}
        found = [it.values() for it in self.alternatives() if it.types() != {"null"}]
        return set().union(*found) if found and None not in found else None

    def properties(self) -> dict[str, "Schema"]:
        found = {name: self.inner(it) for name, it in self.schema.get("properties", {}).items()}
        if self.depth < 6:
            for part in [*self.alternatives(), *(self.inner(it) for it in self.schema.get("allOf", []))]:
                found = part.properties() | found
        return found

    def items(self) -> "Schema | None":
        found = [it for it in [self, *self.alternatives()] if isinstance(it.schema.get("items"), dict)]
        return found[0].inner(found[0].schema["items"]) if found else None

    def required(self) -> set[str]:
        return set(self.schema.get("required", [])).union(*(self.inner(it).required() for it in self.schema.get("allOf", [])))


def type_of(value: object) -> str:
    return {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", dict: "object", list: "array"}[type(value)]


def losses(of: Schema, shown: Schema, at: str) -> list[str]:
    """What the one says and the other does not. That null is allowed is left out by Open WebUI itself."""
    found = []
    if not of.types() - {"null"} <= shown.types():
        found.append(f"{at} may be {sorted(of.types() - {'null'})}, but is shown as {sorted(shown.types())}")
    values, seen = of.values(), shown.values()
    if values is not None and values - {"null"} != (seen or set()) - {"null"}:
        found.append(f"{at} may be one of {sorted(values)}, but is shown with {sorted(seen) if seen is not None else 'any'}")
    if (said := of.schema.get("description")) and said.strip() not in shown.schema.get("description", ""):
        found.append(f"{at} has lost its description")
    if of.depth > 5 or of.is_again:
        return found
    there = shown.properties()
    for name, inner in of.properties().items():
        found += losses(inner, there[name], f"{at}.{name}") if name in there else [f"{at}.{name} is not shown"]
    if not of.required() <= shown.required():
        found.append(f"{at} does not require {sorted(of.required() - shown.required())}")
    if (items := of.items()) and items.types() != ALL_TYPES:
        found += losses(items, shown.items() or Schema({"type": "string"}, {}), f"{at}[]")
    return found


def lost_of(tools: list[dict], told: dict) -> list[str]:
    if "error" in told:
        return [told["error"]]
    specs: dict[str, list[dict]] = {}
    for spec in told["tools"]:
        specs.setdefault(spec["name"], []).append(spec)
    found = []
    for name, same in specs.items():
        if len(same) > 1:
            found.append(f"{len(same)} tools are called {name}, and only one of them is called")
    operations = operations_of([tool["name"] for tool in tools])
    for tool in tools:
        if not (same := specs.get(operations[tool["name"]])):
            found.append(f"{tool['name']} is not shown")
            continue
        spec = same[0]
        if (said := tool.get("description")) and said.strip() not in spec["description"]:
            found.append(f"{tool['name']} has lost its description")
        root = tool["inputSchema"]
        found += losses(Schema(root, root), Schema(spec["parameters"], {}), tool["name"])
    return found


def calls_of_cases(before: str = "") -> list[list]:
    operations = operations_of([f"{before}{tool}" for tool in cases_server.SCHEMAS])
    fits = {tool: [{"it": value} for value in asked.VALUES[tool][0] if value is not None] for tool in asked.VALUES}
    whole = {
        "underscore": {"_it": "a", "it": "b"},
        "camelCase": {"someThing": "a", "an_other": "b"},
        "shadowing": {"json": "a", "copy": "b", "class": "c"},
        "odd_names": {"$top": 1, "名前": "a", "filter[x]": "b", "with space": "c", "a-b.c": True},
        "closed_root": {"it": "a"},
        "open_and_named": {"it": "a"},
        "root_any_of": {"b": 1},
        "several": {"a": "x", "b": 1, "c": True},
        "no_parameters": {},
    }
    calls = [(tool, arguments) for tool in fits for arguments in fits[tool]] + list(whole.items())
    return [[operations[f"{before}{tool}"], arguments] for tool, arguments in calls]


def calls_lost(told: dict, wanted: list[list]) -> list[str]:
    """Arguments come back as they were, numbers as numbers of any form."""
    made = [[call["operation"], call["arguments"]] for call in told.get("calls", [])]
    found = [f"{call[0]} was not there to be called with {json.dumps(call[1])}" for call in wanted if call not in made]
    return found + [
        f"{call['operation']} was called with {json.dumps(call['arguments'])} and answered {json.dumps(call['answer'])[:300]}"
        for call in told.get("calls", [])
        if call["answer"] != call["arguments"]
    ]


# What a model reads of an answer, or a part of it, and how many files people see.
READ = {
    "cases": [
        ("says_text", {}, "plain words", 0),
        ("says_number", {}, "42", 0),
        ("says_two", {}, '"one",', 0),
        ("shows_image", {}, "Image file read successfully.", 1),
        ("shows_image_and_text", {}, '"a dot"', 1),
        ("links", {}, "https://example.org/a.txt", 0),
        ("embeds_text", {}, "inside", 0),
        ("embeds_bytes", {}, "Image file read successfully.", 1),
        ("only_structured", {}, '"sum": 3', 0),
        ("fails", {}, "boom", 0),
        ("refuses_params", {}, "refuses_params it is", 0),
    ],
    # A page is shown to people; the model is told that it is.
    "paints": [("paints", {}, "", 0)],
    "excel": [("create_workbook", {"path": "売上.xlsx"}, "/files/", 0), ("list_workbooks", {}, "売上.xlsx", 0)],
}


def reading_lost(server: str, told: dict) -> list[str]:
    read = {call["operation"]: call for call in told.get("calls", [])}
    found = []
    for tool, _, part, files in READ[server]:
        call = read.get(operation_of(tool), {"text": "nothing, for it was not called", "files": []})
        if part not in str(call["text"]) or len(call["files"]) != files:
            found.append(f"a model reads of {tool}: {call['text']!r}, with {len(call['files'])} files")
        shown = [cases_server.PAGE] if tool == "paints" else []
        if call.get("embeds", []) != shown:
            found.append(f"a person sees of {tool}: {call.get('embeds')}")
    return found


class Report:
    def __init__(self) -> None:
        self.passed = self.failed = 0

    def check(self, what: str, complaints: list[str]) -> None:
        for complaint in complaints:
            print(f"FAIL {what}: {complaint[:600]}", flush=True)
        if not complaints:
            print(f"ok   {what}", flush=True)
        self.passed += not complaints
        self.failed += len(complaints)


def told_by_open_webui(asked_of: dict) -> dict[str, dict]:
    ended = subprocess.run(
        [bridges.CACHE / "open-webui-client/bin/python", HERE / "open_webui_tools.py"],
        input=json.dumps(asked_of),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if ended.returncode != 0:
        sys.exit(f"Open WebUI's code ended with status {ended.returncode}:\n{ended.stderr[-3000:]}")
    return json.loads(ended.stdout)


def look(url: str, prefixes: list[str], servers: dict, tools: dict[str, list[dict]], report: Report) -> None:
    calls = {"cases": calls_of_cases()} | {name: [[operation_of(name), arguments]] for name, arguments in CALLS_OF_CRASHES.items()}
    for prefix in prefixes:
        # Each address is another chat's, so that neither finds what the other made. Who asks is believed with the key.
        headers = bridges.IDENTITY | {"X-OpenWebUI-Chat-Id": f"chat-at{prefix}", "Authorization": f"Bearer {asked.KEY}"}
        reads = {name: [[operation_of(tool), arguments] for tool, arguments, *_ in READ.get(name, [])] for name in servers}
        asked_of = {
            name: {"url": f"{url}{prefix}/{name}", "headers": headers, "calls": calls.get(name, []) + reads[name]} for name in servers
        }
        for name, told in told_by_open_webui(asked_of).items():
            count = sum(len(tool["inputSchema"].get("properties", {})) for tool in tools[name])
            report.check(f"{prefix}/{name}: {len(tools[name])} tools with {count} parameters", lost_of(tools[name], told))
            if name in READ:
                report.check(f"{prefix}/{name}: what a model reads of {len(READ[name])} answers", reading_lost(name, told))
                told["calls"] = told.get("calls", [])[: len(calls.get(name, []))]
            if name in calls:
                lost = calls_lost(told, calls[name])
                report.check(f"{prefix}/{name}: {len(told.get('calls', []))} calls", lost)


def look_at_all(url: str, tools: dict[str, list[dict]], report: Report) -> None:
    """The document of all servers, whose tools have the names of their servers before theirs."""
    headers = bridges.IDENTITY | {"Authorization": f"Bearer {asked.KEY}"}
    pair = operations_of(["x/y_z", "x_y/z"])
    wanted = calls_of_cases("cases/") + [[pair["x/y_z"], {"it": "a"}], [pair["x_y/z"], {"it": 1}]]
    told = told_by_open_webui({"all": {"url": f"{url}/mcpo", "headers": headers, "calls": wanted}})["all"]
    named = [tool | {"name": f"{server}/{tool['name']}"} for server in tools for tool in tools[server]]
    report.check(f"/mcpo: {len(named)} tools of {len(tools)} servers", lost_of(named, told))
    report.check(f"/mcpo: {len(told.get('calls', []))} calls", calls_lost(told, wanted))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", type=lambda path: pathlib.Path(path).resolve(strict=True), help="without it: mcpo")
    options = parser.parse_args()
    subprocess.run([bridges.REPOSITORY / "scripts" / "setup-tests.sh", *INSTALLS], check=True)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="pontoon-owui-") as folder:
        folder = pathlib.Path(folder)
        kind = "pontoon" if options.pontoon else "mcpo"
        servers = bridges.servers(kind, folder / "bridge") | bridges.crashing() | more_servers()
        del servers["broken"]
        apart = folder / "apart"
        apart.mkdir()
        tools = {name: tools_of(server, apart) for name, server in servers.items()}
        if options.pontoon:
            with bridges.pontoon(options.pontoon, folder / "bridge", servers, {"MCPO_API_KEY": asked.KEY}) as replica:
                look(f"http://{replica.listen}", ["", "/mcpo"], servers, tools, report)
                look_at_all(f"http://{replica.listen}", tools, report)
        else:
            with bridges.mcpo(folder / "bridge", *bridges.with_config(folder / "bridge", servers), "--api-key", asked.KEY) as url:
                look(url, [""], servers, tools, report)
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    assert set(CALLS_OF_CRASHES) == set(cases_server.CRASHES)
    main()
