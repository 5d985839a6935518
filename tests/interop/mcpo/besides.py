#!/usr/bin/env python3
"""Prompts and resources by REST, of server-everything and of a server with odd names of its own.

    tests/interop/mcpo/besides.py --pontoon target/debug/pontoon

What the servers say over stdio, asked without a bridge, is what has to be answered at `prompts`, `prompts/PROMPT`, `resources`,
`resources/templates` and `resources/read`, under `/NAME` and `/mcpo/NAME`; and what is not there, not offered, not fitting, without the key, or asked of a server that
is busy is refused as calls of tools are. Ends with `N passed, N failed`.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import typing
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import asked  # noqa: E402
import bridges  # noqa: E402
from bridges import Client  # noqa: E402
from open_webui import Report, ask, say, started  # noqa: E402

NOT_FOUND = {"detail": "Not Found"}
BUSY_SECONDS = 10
# Tools with the names of what is offered, and with one like it.
TOOLS = ["prompts", "resources/read", "prompts/読む", "prompts/other"]
KEY = {"Authorization": f"Bearer {asked.KEY}"}


class Answer(typing.NamedTuple):
    status: int
    headers: dict
    body: object


class Bridge:
    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, path: str, body: object = None, method: str = "POST", headers: dict = KEY) -> Answer:
        """The answer to a request, whose body is sent as it is if it is bytes."""
        data = body if isinstance(body, bytes) or method == "GET" else json.dumps({} if body is None else body).encode()
        own = {"Content-Type": "application/json"} | bridges.IDENTITY | headers
        with Client(self.url, timeout=30) as client, client.send(method, urllib.parse.quote(path), data, own) as response:
            text = response.read().decode()
            body = json.loads(text) if response.headers.get_content_type() == "application/json" else text
            return Answer(response.status, {name.lower(): value for name, value in response.headers.items()}, body)


def servers() -> dict:
    both = {"rest": ["prompts", "resources"]}
    everything = bridges.servers("pontoon", HERE)["everything"]
    return {
        "everything": everything | both,
        "prompts-only": everything | {"rest": ["prompts"]},
        "none": everything,
        # One call at a time, and no other waits for it.
        "narrow": everything | both | {"max_in_flight": 1},
        "odd": bridges.cases("prompting") | both,
        "named": bridges.cases("prompting", *TOOLS) | both,
    }


class Straight:
    """A server asked over stdio, without a bridge."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process, self.id = process, 1
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "interop", "version": "1"}}
        ask(process, "initialize", hello, 0)
        say(process, {"method": "notifications/initialized"})

    def __call__(self, method: str, **params: object) -> dict:
        self.id += 1
        return ask(self.process, method, params, self.id)


def plain(value: object) -> object:
    """Without the time, which server-everything writes into its resources, also where they are in Base64."""
    text = json.dumps(value)
    text = re.sub(r"\d{1,2}:\d\d:\d\d [AP]M", "TIME", text)
    return json.loads(re.sub(r"(UmVzb3VyY2Ug)[\w+/=]+", r"\1...", text))


def as_told(contents: list[dict]) -> object:
    """What a call of a tool would say of a resource: one text or several, JSON in them as JSON, and bytes as a data URL, which stands in a
    list unless it is a picture."""
    found = []
    for it in contents:
        if "blob" in it:
            found.append(f"data:{it.get('mimeType', 'application/octet-stream')};base64,{it['blob']}")
            continue
        try:
            found.append(json.loads(it["text"]))
        except ValueError:
            found.append(it["text"])
    is_file = str(found[0]).startswith("data:") and not str(found[0]).startswith("data:image/") if found else False
    return found[0] if len(found) == 1 and not is_file else found


def differs(answer: Answer, status: int, body: object) -> list[str]:
    if answer.status == status and plain(answer.body) == plain(body):
        return []
    return [f"{answer.status} {json.dumps(answer.body, ensure_ascii=False)[:300]}, not {status} {json.dumps(body, ensure_ascii=False)[:300]}"]


ARGUMENTS = {
    "args-prompt": {"city": "京都", "state": "Kansai"},
    "completable-prompt": {"department": "Engineering", "name": "Alice"},
    "resource-prompt": {"resourceType": "Text", "resourceId": "1"},
    "group/prompt": {"$about": "a", "名前": "b"},
}
TEMPLATED = ["demo://resource/dynamic/text/1", "demo://resource/dynamic/blob/1"]


def is_as_the_server_says(bridge: Bridge, name: str, at: str, server: Straight, report: Report) -> None:
    prompts, resources = server("prompts/list")["prompts"], server("resources/list")["resources"]
    templates = server("resources/templates/list")["resourceTemplates"] if name != "odd" else []
    for body in [None, b"", {"unknown": 1}]:
        report.check(f"{at}/prompts {body}: {len(prompts)} of them", differs(bridge.post(f"{at}/prompts", body), 200, prompts))
        report.check(f"{at}/resources {body}: {len(resources)} of them", differs(bridge.post(f"{at}/resources", body), 200, resources))
        made = bridge.post(f"{at}/resources/templates", body)
        report.check(f"{at}/resources/templates {body}: {len(templates)} of them", differs(made, 200, templates))
    for prompt in [it["name"] for it in prompts if it["name"] != "fails"]:
        arguments = ARGUMENTS.get(prompt, {})
        result = server("prompts/get", name=prompt, arguments=arguments)
        report.check(f"{at}/prompts/{prompt}", differs(bridge.post(f"{at}/prompts/{prompt}", arguments), 200, result))
    for uri in [it["uri"] for it in resources] + (TEMPLATED if name != "odd" else []):
        contents = as_told(server("resources/read", uri=uri)["contents"])
        report.check(f"{at}/resources/read {uri}", differs(bridge.post(f"{at}/resources/read", {"uri": uri}), 200, contents))
    report.check(f"{at}/prompts/: a slash at the end", differs(bridge.post(f"{at}/prompts/"), 200, prompts))


def is_in_its_document(bridge: Bridge, name: str, offered: list[str], report: Report) -> None:
    """What is offered has an operation, and what is not has none."""
    paths = bridge.post(f"/{name}/openapi.json", method="GET").body["paths"]
    found = sorted(path for path in paths if re.match("/(prompts|resources)(/|$)", path))
    report.check(f"/{name}/openapi.json: {len(offered)} operations", [] if found == sorted(offered) else [f"it has {found}, not {sorted(offered)}"])


def refusals(bridge: Bridge, report: Report) -> None:
    def missing(field: str, given: object) -> dict:
        return {"detail": [{"type": "missing", "loc": ["body", field], "msg": "Field required", "input": given}]}

    def wrong(field: str, given: object) -> dict:
        said = {"type": "string_type", "loc": ["body", field], "msg": "Input should be a valid string", "input": given}
        return {"detail": [said]}

    def of_the_server(message: str) -> dict:
        return {"detail": {"message": message}}

    asked_and_told = [
        ("/everything/prompts/nothing-of-this-name", {}, 404, NOT_FOUND),
        ("/everything/prompts/Simple-Prompt", {}, 404, NOT_FOUND),
        ("/everything/resources/write", {}, 404, NOT_FOUND),
        ("/prompts-only/resources", {}, 404, NOT_FOUND),
        ("/prompts-only/resources/templates", {}, 404, NOT_FOUND),
        ("/prompts-only/resources/read", {"uri": TEMPLATED[0]}, 404, NOT_FOUND),
        ("/none/prompts", {}, 404, NOT_FOUND),
        ("/none/prompts/simple-prompt", {}, 404, NOT_FOUND),
        ("/none/resources", {}, 404, NOT_FOUND),
        ("/nobody/prompts", {}, 404, NOT_FOUND),
        ("/everything/prompts/args-prompt", {}, 422, missing("city", {})),
        ("/everything/prompts/args-prompt", {"city": 5}, 422, wrong("city", 5)),
        ("/everything/resources/read", {}, 422, missing("uri", {})),
        ("/everything/resources/read", {"uri": ["a"]}, 422, wrong("uri", ["a"])),
        ("/everything/resources/read", {"uri": "demo://nothing"}, 422, of_the_server("MCP error -32602: Resource demo://nothing not found")),
        ("/odd/prompts/fails", {}, 500, {"detail": {"message": "this prompt fails", "data": {"of": "fails"}}}),
    ]
    for path, body, status, told in asked_and_told:
        report.check(f"{path} {json.dumps(body)}: {status}", differs(bridge.post(path, body), status, told))
    for body in [b"{", b"nonsense"]:
        answer = bridge.post("/everything/resources/read", body)
        kinds = [it.get("type") for it in answer.body["detail"]] if answer.status == 422 else [answer]
        report.check(f"/everything/resources/read {body}: no JSON", [] if kinds == ["json_invalid"] else [str(kinds)])
    for path in ["/everything/prompts", "/everything/prompts/simple-prompt", "/everything/resources/read"]:
        answer = bridge.post(path, method="GET")
        # As with tools: it is there, and is posted to.
        found = differs(answer, 405, {"detail": "Method Not Allowed"})
        report.check(f"GET {path}: only POST", found or ([] if answer.headers.get("allow") == "POST" else [str(answer.headers)]))
        no_key = bridge.post(path, {"uri": TEMPLATED[0]}, headers={})
        report.check(f"{path}: without a key", differs(no_key, 401, {"detail": "Missing or invalid Authorization header"}))


def tools_of_these_names(bridge: Bridge, report: Report) -> None:
    """A tool comes before what would be offered under its name, in the document as well."""
    paths = bridge.post("/named/openapi.json", method="GET").body["paths"]
    found = sorted(path for path in paths if re.match("/(prompts|resources)(/|$)", path))
    expected = sorted([f"/{tool}" for tool in TOOLS] + ["/prompts/group/prompt", "/prompts/fails", "/resources", "/resources/templates"])
    report.check(f"/named/openapi.json: {len(expected)} operations", [] if found == expected else [f"it has {found}, not {expected}"])
    for tool in TOOLS:
        said = paths.get(f"/{tool}", {}).get("post", {})
        report.check(f"/named/openapi.json: {tool} is the tool", [] if "requestBody" in said and "description" not in said else [str(said)])
        answer = bridge.post(f"/named/{tool}", {"it": "a"})
        report.check(f"/named/{tool}: is the tool", differs(answer, 200, {"it": "a"}))
    answer = bridge.post("/named/prompts/group/prompt", {"$about": "a"})
    report.check("/named/prompts/group/prompt: is the prompt", [] if answer.status == 200 and "messages" in answer.body else [str(answer)])


def is_busy(bridge: Bridge, report: Report) -> None:
    """While a call is made, there is no place for another; afterwards there is."""
    told: list[Answer] = []

    def call() -> None:
        # The others may be in its way as well.
        while not told or (told[-1].status == 429 and time.monotonic() < deadline):
            told.append(bridge.post("/narrow/trigger-long-running-operation", {"duration": 3, "steps": 1}))

    deadline = time.monotonic() + BUSY_SECONDS
    caller = threading.Thread(target=call)
    caller.start()
    refused: dict[str, Answer] = {}
    paths = {"prompts/simple-prompt": {}, "resources/read": {"uri": TEMPLATED[0]}}
    while caller.is_alive() and len(refused) < len(paths) and time.monotonic() < deadline:
        for path, body in paths.items():
            answer = bridge.post(f"/narrow/{path}", body)
            if answer.status != 200:
                refused.setdefault(path, answer)
    caller.join()
    for path, body in paths.items():
        answer = refused.get(path)
        said = str(answer.body["detail"]["message"]) if answer and isinstance(answer.body, dict) else ""
        is_told = answer is not None and answer.status == 429 and "retry-after" in answer.headers and "busy" in said
        report.check(f"/narrow/{path}: while a call is made", [] if is_told else [f"{answer}"])
        report.check(f"/narrow/{path}: afterwards", [] if bridge.post(f"/narrow/{path}", body).status == 200 else ["it is refused"])
    report.check("/narrow: the call itself", [] if told[-1].status == 200 else [str(told)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    options = parser.parse_args()
    subprocess.run([bridges.REPOSITORY / "scripts" / "setup-tests.sh", "node22", "everything"], check=True)
    report = Report()
    both = ["/prompts", "/resources", "/resources/templates", "/resources/read"]
    with tempfile.TemporaryDirectory(prefix="pontoon-besides-") as folder:
        folder = pathlib.Path(folder)
        with bridges.pontoon(options.pontoon, folder / "bridge", servers(), {"MCPO_API_KEY": asked.KEY}) as replica:
            bridge = Bridge(f"http://{replica.listen}")
            for name in ["everything", "odd"]:
                with started(servers()[name], folder) as process:
                    server = Straight(process)
                    named = [f"/prompts/{it['name']}" for it in server("prompts/list")["prompts"]]
                    for prefix in ["", "/mcpo"]:
                        is_as_the_server_says(bridge, name, f"{prefix}/{name}", server, report)
                    if name == "everything":
                        is_in_its_document(bridge, name, both + named, report)
                        is_in_its_document(bridge, "prompts-only", ["/prompts", *named], report)
            is_in_its_document(bridge, "none", [], report)
            refusals(bridge, report)
            tools_of_these_names(bridge, report)
            is_busy(bridge, report)
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
