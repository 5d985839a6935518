#!/usr/bin/env python3
"""The real mcpo and `pontoon serve` side by side: the same documents and the same answers, but for a written list.

    tests/interop/mcpo/golden.py --pontoon target/debug/pontoon
    tests/interop/mcpo/golden.py --pontoon target/debug/pontoon --write    prints the list as it would have to be
    tests/interop/mcpo/golden.py --pontoon target/debug/pontoon --show /cases/text    both answers to such requests, where they differ
    tests/interop/mcpo/golden.py                                          mcpo beside another mcpo: that must be equal

Both stand before mcp-server-time, server-everything, server-memory, excel-mcp-server and a server of ours with a tool for each kind
of schema and each kind of answer (`cases_server.py`); `asked.py` is what both are asked: without a key, with one, and with one that
documents need, too. So is `pontoon mcpo` with the same configuration, without what mcpo does not read. What differs has to be in
`improvements.jsonc`, by request and JSON pointer, with both sides and a reason; what is there has to differ. With `--write`, differences
without a reason come under one that begins with `?`, which is for a person to replace.

Pontoon is asked everything of the cases under `/mcpo/NAME`, too, where only the address of the server may differ, and before the tools
with which mcpo loads no server at all. Ends with `N passed, N failed`.
"""

import argparse
import contextlib
import doctest
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import asked  # noqa: E402
import bridges  # noqa: E402
import cases_server  # noqa: E402
import differences  # noqa: E402
from asked import Asked  # noqa: E402
from bridges import Client  # noqa: E402

IMPROVEMENTS = HERE / "improvements.jsonc"
HEADERS = ["content-type", "allow", "www-authenticate", "location", "retry-after"]
# Only compared where pages ask.
FOR_PAGES = ["allow-origin", "allow-credentials", "allow-methods", "allow-headers", "max-age", "expose-headers"]
HEADERS_FOR_PAGES = ["vary", *(f"access-control-{name}" for name in FOR_PAGES)]
KEYED = {"MCPO_API_KEY": asked.KEY}
STRICT = KEYED | {"MCPO_STRICT_AUTH": "true"}

# An answer as it is compared.
Answer = dict[str, object]


def answer_of(client: Client, request: Asked, plain) -> Answer:
    names = HEADERS + (HEADERS_FOR_PAGES if request.method == "OPTIONS" or "Origin" in request.headers else [])
    with client.send(request.method, request.path, request.body, bridges.IDENTITY | request.headers) as response:
        data = response.read()
        # Lines of one name are one list.
        headers = {name: plain(", ".join(response.headers.get_all(name))) for name in names if name in response.headers}
        for name in headers.keys() & {"allow", "vary", "access-control-allow-methods", "access-control-allow-headers"}:
            headers[name] = ", ".join(sorted(set(re.split(r",\s*", headers[name]))))
        status, kind = response.status, response.headers.get_content_type()
    if kind == "application/json" and data:
        # What is no JSON shows itself as a text.
        with contextlib.suppress(ValueError):
            return {"status": status, "headers": headers, "body": differences.expanded(json.loads(plain(data.decode())))}
    return {"status": status, "headers": headers, "body": plain(data.decode(errors="replace"))}


def answers(url: str, requests: list[Asked], folder: pathlib.Path) -> dict[str, Answer]:
    """What is answered, by request, without what is another each time: folders, addresses, times, sizes and ids."""

    def plain(text: str) -> str:
        text = text.replace(url, "http://BRIDGE").replace(str(folder), "FOLDER")
        text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?", "TIME", text)
        text = re.sub(r"(?<=/files/)[0-9a-f]{40,}", "ID", text)
        text = re.sub(r"\(\d+(\.\d+)? k?B, until", "(SIZE, until", text)
        return re.sub(r"\b\d{1,2}:\d\d:\d\d( ?[AP]M)?", "TIME", text)

    found = {}
    for request in requests:
        # A connection for each: what one request leaves behind on it is not the next one's.
        with Client(url, timeout=20) as client:
            name = request.name()
            assert name not in found, f"{name} is asked twice"
            try:
                found[name] = answer_of(client, request, plain)
                # mcpo listens when it knows all its servers; Pontoon asks for patience until then.
                deadline = time.monotonic() + bridges.START_SECONDS
                while found[name]["status"] == 503 and "still being learnt" in str(found[name]["body"]) and time.monotonic() < deadline:
                    time.sleep(0.5)
                    found[name] = answer_of(client, request, plain)
            except OSError as error:
                raise OSError(f"{url}: {name}: {error}") from error
    return found


def compared(mcpo: dict[str, Answer], pontoon: dict[str, Answer], prefix: str = "") -> dict[str, dict]:
    found = {f"{prefix}{name}": differences.differences(mcpo[name], pontoon[name]) for name in mcpo}
    return {name: pointers for name, pointers in found.items() if pointers}


def under_mcpo(request: Asked) -> Asked:
    return request._replace(path=f"/mcpo{request.path}")


def says_where_it_is(answer: Answer, path: str) -> Answer:
    """The answer with the address of its server, if it is a document, as it has to be at this path."""
    if isinstance(answer["body"], dict) and "servers" in answer["body"]:
        return answer | {"body": answer["body"] | {"servers": [{"url": path}]}}
    return answer


class Run:
    """Both bridges in one of three settings after the other, and what was found."""

    def __init__(self, program: pathlib.Path | None, folder: pathlib.Path) -> None:
        self.program, self.folder = program, folder
        self.found: dict[str, dict] = {}
        self.answers: dict[str, tuple[Answer, Answer]] = {}
        self.complaints: list[str] = []
        self.compared = 0

    def side_by_side(self, name: str, servers, requests: list[Asked], options: list[str], settings: dict, prefix: str = "") -> None:
        """`pontoon serve` with these settings, beside mcpo with these options."""
        folder, beside = self.folder / name, self.folder / f"{name}-beside"
        with bridges.mcpo(folder, *bridges.with_config(folder, servers("mcpo", folder)), *options) as url:
            of_mcpo = answers(url, requests, folder)
        if self.program:
            with bridges.pontoon(self.program, beside, servers("pontoon", beside), settings) as replica:
                url = f"http://{replica.listen}"
                ours = answers(url, requests, beside)
                self.is_the_same_under_mcpo(url, requests, ours, beside, prefix)
                if name == "open":
                    self.goes_on(url, beside)
            self.is_the_same_by_command_line(name, servers, requests, options, of_mcpo, ours, prefix)
        else:
            with bridges.mcpo(beside, *bridges.with_config(beside, servers("mcpo", beside)), *options) as url:
                ours = answers(url, requests, beside)
        self.compare(of_mcpo, ours, prefix)

    def by_command_line(self, name: str, requests: list[Asked], options: list, prefix: str) -> None:
        """`pontoon mcpo` and mcpo with the same command line."""
        of_both = []
        for kind, start in [("mcpo", bridges.mcpo), ("beside", self.start_beside)]:
            folder = self.folder / f"{name}-{kind}"
            with start(folder, *options) as url:
                of_both.append(answers(url, requests, folder))
        self.compare(*of_both, prefix)

    def start_beside(self, folder: pathlib.Path, *options):
        return bridges.pontoon_mcpo(self.program, folder, *options) if self.program else bridges.mcpo(folder, *options)

    def compare(self, of_mcpo: dict[str, Answer], ours: dict[str, Answer], prefix: str) -> None:
        self.found |= compared(of_mcpo, ours, prefix)
        self.answers |= {f"{prefix}{name}": (of_mcpo[name], ours[name]) for name in ours}
        self.compared += len(ours)

    def is_the_same_by_command_line(
        self, name: str, servers, requests: list[Asked], options: list[str], of_mcpo: dict[str, Answer], ours: dict[str, Answer], prefix: str
    ) -> None:
        """`pontoon mcpo` answers as `pontoon serve` does that has the same servers and keys, or what it answers differs from mcpo on its own."""
        folder = self.folder / f"{name}-by-command-line"
        # By itself it has one process for all, as mcpo has; a server with a folder for each chat says so.
        config = {
            name: {key: value for key, value in server.items() if key != "mode" or "workspace" in server}
            for name, server in servers("pontoon", folder).items()
        }
        with bridges.pontoon_mcpo(self.program, folder, *bridges.with_config(folder, config), *options) as url:
            there = answers(url, requests, folder)
        others = {request: answer for request, answer in there.items() if differences.differences(ours[request], answer)}
        self.compare({request: of_mcpo[request] for request in others}, others, f"by command line: {prefix}")
        self.compared += len(ours) - len(others)

    def is_the_same_under_mcpo(
        self, url: str, requests: list[Asked], ours: dict[str, Answer], folder: pathlib.Path, prefix: str
    ) -> None:
        """The same answers at the other address, of what leaves nothing behind. A server itself speaks JSON-RPC there."""
        again = [it for it in requests if it.path.startswith(("/cases/", "/nobody/")) or it.path.endswith("/openapi.json")]
        again = [it for it in again if it.path not in ("/cases/", "/openapi.json")]
        there = answers(url, [under_mcpo(request) for request in again], folder)
        for request in again:
            server = f"/mcpo/{request.path.split('/')[1]}"
            here, other = says_where_it_is(ours[request.name()], server), there[under_mcpo(request).name()]
            for pointer, sides in differences.differences(here, other).items():
                sides = {"here": sides.get("mcpo"), "there": sides.get("pontoon")}
                self.complaints.append(f"{prefix}{request.name()} is otherwise under /mcpo: {pointer} {differences.line(sides)}")
        self.compared += len(again)

    def goes_on(self, url: str, folder: pathlib.Path) -> None:
        """What mcpo does not survive, or not always."""
        for request, statuses in asked.only_of_pontoon():
            [answer] = answers(url, [request], folder).values()
            if answer["status"] not in statuses:
                self.complaints.append(f"{request.name()} was answered with {differences.line(answer)[:400]}")
            self.compared += 1

    def crashes(self) -> None:
        """mcpo still cannot load these servers, and Pontoon shows and calls their tools."""
        requests = [Asked("GET", f"/{name}/openapi.json") for name in cases_server.CRASHES]
        folder = self.folder / "crashes"
        with bridges.mcpo(folder, *bridges.with_config(folder, bridges.crashing() | {"cases": bridges.cases()})) as url:
            for name, answer in answers(url, requests, folder).items():
                if answer["body"]["paths"]:
                    self.complaints.append(f"{name}: mcpo loads it now, so it belongs to SCHEMAS")
        self.compared += len(requests)
        if not self.program:
            return
        folder = self.folder / "crashes-beside"
        calls = [asked.post(f"/{name}/{name}", body) for name, body in CALLS_OF_CRASHES.items()]
        with bridges.pontoon(self.program, folder, bridges.crashing()) as replica:
            found = answers(f"http://{replica.listen}", requests + calls, folder)
        for request in requests:
            name = request.path.split("/")[1]
            body = found[request.name()]["body"]
            if not isinstance(body, dict) or f"/{name}" not in body.get("paths", {}):
                self.complaints.append(f"{request.name()} does not show the tool: {differences.line(found[request.name()])[:400]}")
        for call in calls:
            answer = found[call.name()]
            if answer["status"] != 200 or differences.differences(json.loads(call.body), answer["body"]):
                self.complaints.append(f"{call.name()} did not give back its arguments: {differences.line(answer)[:400]}")
        self.compared += len(calls)


CALLS_OF_CRASHES = {
    "old_reference": {"it": {"x": 1.5}},
    "property_reference": {"a": {"x": 1.5}, "b": {"x": 2.5}},
    "recursive": {"tree": {"value": "a", "children": [{"value": "b", "children": []}]}},
    "yes_items": {"it": [1, "a"]},
    "yes_property": {"it": "a"},
    "model_name": {"model_config": "a", "model_dump": "b"},
}


def only_cases(kind: str, folder: pathlib.Path) -> dict:
    return {"cases": bridges.cases(), "plain": bridges.cases("plain")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", type=lambda path: pathlib.Path(path).resolve(strict=True), help="without it: another mcpo")
    parser.add_argument("--show", metavar="PART", help="show both answers to requests with this in their name, if they differ")
    parser.add_argument("--write", action="store_true", help="print the list as it would have to be, instead of judging")
    options = parser.parse_args()
    if doctest.testmod(differences).failed:
        sys.exit(1)
    said = sys.stderr if options.write else sys.stdout
    subprocess.run([bridges.REPOSITORY / "scripts" / "setup-tests.sh", *bridges.INSTALLS], check=True, stdout=said)

    with tempfile.TemporaryDirectory(prefix="pontoon-mcpo-") as folder:
        run = Run(options.pontoon, pathlib.Path(folder))
        run.side_by_side("open", bridges.servers, asked.open_to_all(), [], {})
        keyed = ["--api-key", asked.KEY]
        run.side_by_side("key", only_cases, asked.behind_a_key(), keyed, KEYED, "with a key: ")
        run.side_by_side("strict", only_cases, asked.behind_a_key(), [*keyed, "--strict-auth"], STRICT, "with a strict key: ")
        server = bridges.cases("plain")
        command = ["--", server["command"], *server["args"]]
        named = ["--name", "Tools of ours", "--description", "What we have.", "--version", "3.2.1"]
        run.by_command_line("single", asked.of_a_single_server(""), [*named, *command], "a single server: ")
        rooted = [*asked.of_a_single_server(""), *asked.of_a_single_server("/rp")]
        run.by_command_line("rooted", rooted, ["--root-path", "/rp", *command], "a single server with a root path: ")
        plain = bridges.with_config(run.folder / "plain", {"plain": server})
        paths = ["--path-prefix", "tools", "--root-path", "/rp"]
        run.by_command_line("elsewhere", asked.elsewhere(), [*plain, *named, *paths], "elsewhere: ")
        run.by_command_line("pages", asked.by_pages(asked.PAGE, "null"), plain, "all pages: ")
        run.by_command_line("page", asked.by_pages(asked.PAGE, asked.OTHER_PAGE), [*plain, "--cors-allow-origins", asked.PAGE], "one page: ")
        run.by_command_line("keyed-page", asked.by_pages(asked.PAGE), [*plain, *keyed, "--strict-auth"], "all pages with a strict key: ")
        run.crashes()
    improvements = differences.Improvements.read(IMPROVEMENTS if options.pontoon else HERE / "none")
    if options.show is not None:
        for name in [name for name in run.found if options.show in name]:
            print(name, *(f"    {differences.line(answer)[:1500]}" for answer in run.answers[name]), sep="\n")
        return
    if options.write:
        print(improvements.written(run.found), end="")
        return
    complaints = run.complaints + improvements.judged(run.found)
    for complaint in complaints:
        print(f"FAIL {complaint[:1000]}")
    listed = sum(len(pointers) for pointers in run.found.values())
    print(f"{run.compared} answers compared; {listed} places differ in {len(run.found)} of them, {len(improvements.listed)} listed")
    print(f"{run.compared - len(complaints)} passed, {len(complaints)} failed" if not complaints else f"0 passed, {len(complaints)} failed")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
