#!/usr/bin/env python3
"""The Office servers of `examples/office-tools`, used by two people in two chats each, through two SDKs.

    tests/interop/office.py --pontoon target/release/pontoon
    tests/interop/office.py --pontoon target/release/pontoon --by rest     as OpenAPI servers, without an SDK

PowerPoint keeps presentations in the memory of its process, Excel keeps workbooks in a folder. Each turn
of a chat is a client program of its own: it opens a session, calls, and closes the session, as Open WebUI
does. By REST a call is a request, which says whose it is by the headers of Open WebUI that are not signed. Files are
downloaded as a browser would and opened with python-pptx and openpyxl.
Ends with `N passed, N failed`.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
from email.message import Message

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "deploy"))

from people import API_KEY, JWT_SECRET, REPOSITORY, Person, link_in, shipped_servers, texts  # noqa: E402
from replicas import Client, Replica, free_port  # noqa: E402

CACHE = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE") or pathlib.Path.home() / ".cache" / "pontoon-test")
INSTALLS = ["office-excel", "office-powerpoint"]
SDKS = {"mcp1": "py-mcp1", "mcp2": "py-mcp2"}
REST = "rest"
TURN_SECONDS = 90
RECORD_SECONDS = 10


class Office:
    """The bridge with the shipped configuration, and people who talk to it."""

    def __init__(self, program: pathlib.Path, directory: pathlib.Path, is_signed: bool) -> None:
        # The shipped file names the programs as the image has them: found in PATH. Only the folders that
        # they may read are added, for in the image they are in /opt, and here they are not.
        installs = [(CACHE / name).resolve() for name in ["office-excel", "office-powerpoint"]]
        pythons = {str((install / "bin" / "python").resolve().parents[1]) for install in installs}
        servers = shipped_servers("office-tools")
        for server in servers.values():
            server["isolation"]["read"] = [*map(str, installs), *pythons]
        settings = {
            "PATH": ":".join([*(f"{install}/bin" for install in installs), os.environ["PATH"]]),
            "MCPO_JOBS_DIR": str(directory / "jobs"),
            "MCPO_API_KEY": API_KEY,
            "MCPO_QUEUE_WAIT": "60",
        }
        if is_signed:
            settings["MCPO_OWUI_JWT_SECRET"] = JWT_SECRET
        self.jobs = directory / "jobs"
        self.replica = Replica(program, directory / "bridge", f"127.0.0.1:{free_port()}", servers, settings)
        self.url = f"http://{self.replica.listen}"

    def turn(self, sdk: str, server: str, person: "Person", *calls: tuple) -> list[dict]:
        """The results of the calls, made in one session that is closed after them."""
        if sdk == REST:
            return [self.post(server, person, tool, arguments) for tool, arguments in calls]
        asked = {"headers": person.headers(), "calls": calls}
        ended = subprocess.run(
            [CACHE / SDKS[sdk] / "bin" / "python", HERE / "python" / f"office_{sdk}.py", f"{self.url}/mcp/{server}"],
            input=json.dumps(asked).encode(),
            capture_output=True,
            timeout=TURN_SECONDS,
        )
        assert ended.returncode == 0, f"{sdk} failed: {ended.stderr.decode()[-1500:]}"
        results = json.loads(ended.stdout)
        for (tool, _), result in zip(calls, results, strict=True):
            assert not result.get("isError"), f"{tool} failed: {result}"
        return results

    def post(self, server: str, person: "Person", tool: str, arguments: dict) -> dict:
        """The answer to one request, with its parts as the texts that a model reads."""
        headers = person.plain_headers() | {"Content-Type": "application/json"}
        with Client(self.url, timeout=TURN_SECONDS) as client:
            with client.send("POST", f"/mcpo/{server}/{tool}", json.dumps(arguments).encode(), headers) as response:
                body = response.read().decode()
                assert response.status == 200, f"{tool} failed: HTTP {response.status} {body[:500]}"
                assert response.headers.get_content_type() == "application/json", response.headers["Content-Type"]
        answer = json.loads(body)
        parts = answer if isinstance(answer, list) else [answer]
        texts = [part if isinstance(part, str) else json.dumps(part, ensure_ascii=False) for part in parts]
        return {"content": [{"type": "text", "text": text} for text in texts]}

    def download(self, result: dict, name: str) -> bytes:
        """The file that the answer links to, fetched with nothing but the link."""
        path = link_in(result, name)
        with Client(self.url) as client, client.send("GET", path) as response:
            body = response.read()
            assert response.status == 200, f"{path}: HTTP {response.status} {body[:200]}"
            told = Message()
            told["Content-Disposition"] = response.headers["Content-Disposition"]
            assert told.get_content_disposition() == "attachment", told["Content-Disposition"]
            saved_as = re.search(r"filename\*=UTF-8''([^;]+)", told["Content-Disposition"])
            assert saved_as and urllib.parse.unquote(saved_as[1]) == name, told["Content-Disposition"]
            assert response.headers["X-Content-Type-Options"] == "nosniff"
        return body


def run_in(install: str, program: str, *arguments: str) -> str:
    """What a program prints in the environment of an install."""
    python = CACHE / install / "bin" / "python"
    ended = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr[-800:]
    return ended.stdout.strip()


def presentations(result: dict) -> list[str]:
    told = json.loads(texts(result)[0])
    return sorted(entry["id"] for entry in told["presentations"])


def presentations_of_chats_are_disjoint(office: Office, sdk: str) -> None:
    chats = [Person("ada"), Person("ada"), Person("ben"), Person("ben")]
    for n, person in enumerate(chats):
        office.turn(sdk, "powerpoint", person, ("create_presentation", {"id": f"deck-{n}"}))
    # A later turn, so another session, which must find what the first one made, and nothing else.
    for n, person in enumerate(chats):
        (listed,) = office.turn(sdk, "powerpoint", person, ("list_presentations", {}))
        assert presentations(listed) == [f"deck-{n}"], f"{person.name}, chat {n}: {texts(listed)}"
    # Who knows the id of a chat is not yet its owner.
    (listed,) = office.turn(sdk, "powerpoint", Person("ben", chats[0].chat), ("list_presentations", {}))
    assert presentations(listed) == [], f"ben sees what is in ada's chat: {texts(listed)}"


def a_presentation_is_made_over_several_turns(office: Office, sdk: str) -> None:
    ada, name, title = Person("ada"), "四半期 報告.pptx", "売上の概要"
    office.turn(sdk, "powerpoint", ada, ("create_presentation", {"id": "q3"}))
    slide = {"layout_index": 0, "title": title, "presentation_id": "q3"}
    office.turn(sdk, "powerpoint", ada, ("add_slide", slide))
    (saved,) = office.turn(
        sdk, "powerpoint", ada, ("save_presentation", {"file_path": name, "presentation_id": "q3"})
    )
    with tempfile.NamedTemporaryFile(suffix=".pptx") as file:
        file.write(office.download(saved, name))
        file.flush()
        program = "import pptx, sys; print([s.shapes.title.text for s in pptx.Presentation(sys.argv[1]).slides])"
        assert run_in("office-powerpoint", program, file.name) == str([title])


def a_link_keeps_what_it_named(office: Office, sdk: str) -> None:
    """The process goes on writing the same file; the link of the first save must not change under its reader."""
    ada, name = Person("ada"), "deck.pptx"
    save = ("save_presentation", {"file_path": name, "presentation_id": "d"})
    _, first = office.turn(sdk, "powerpoint", ada, ("create_presentation", {"id": "d"}), save)
    before = office.download(first, name)
    _, second = office.turn(
        sdk, "powerpoint", ada, ("add_slide", {"layout_index": 0, "title": "more", "presentation_id": "d"}), save
    )
    assert office.download(first, name) == before, "the first link shows the second save"
    assert office.download(second, name) != before, "the second link shows the first save"


def a_workbook_survives_from_process_to_process(office: Office, sdk: str) -> None:
    ada, name = Person("ada"), "売上.xlsx"
    rows = [["月", "円"], ["十月", 1200], ["十一月", 3400]]
    office.turn(sdk, "excel", ada, ("create_workbook", {"path": name, "sheets": ["集計"]}))
    (written,) = office.turn(
        sdk, "excel", ada, ("write_range", {"path": name, "sheet": "集計", "at": "A1", "rows": rows})
    )
    (read,) = office.turn(sdk, "excel", ada, ("read_range", {"path": name, "sheet": "集計"}))
    assert "十一月" in texts(read)[0] and "3400" in texts(read)[0], texts(read)
    with tempfile.NamedTemporaryFile(suffix=".xlsx") as file:
        file.write(office.download(written, name))
        file.flush()
        program = "import openpyxl, sys; print([list(r) for r in openpyxl.load_workbook(sys.argv[1])['集計'].values])"
        assert run_in("office-excel", program, file.name) == str(rows)


def workbooks_of_chats_are_disjoint(office: Office, sdk: str) -> None:
    name, secret = "book.xlsx", "給与"
    ada, other, ben = Person("ada"), Person("ada"), Person("ben")
    office.turn(sdk, "excel", ada, ("create_workbook", {"path": name, "sheets": [secret]}))
    for person in [other, ben, Person("ben", ada.chat)]:
        try:
            office.turn(sdk, "excel", person, ("read_range", {"path": name, "sheet": secret}))
        except AssertionError as error:
            assert "read_range failed" in str(error), error
        else:
            raise AssertionError(f"{person.name} read ada's workbook from another chat")
        # The name is free for them, which it would not be in a shared folder.
        office.turn(sdk, "excel", person, ("create_workbook", {"path": name, "sheets": [person.name]}))


def a_presentation_stays_in_its_workspace(office: Office, sdk: str) -> None:
    with tempfile.TemporaryDirectory() as elsewhere:
        target = f"{elsewhere}/escaped.pptx"
        save = ("save_presentation", {"file_path": target, "presentation_id": "e"})
        _, saved = office.turn(sdk, "powerpoint", Person("ada"), ("create_presentation", {"id": "e"}), save)
        assert "error" in texts(saved)[0] and not os.path.exists(target), texts(saved)


def nothing_but_files_is_served(office: Office, sdk: str) -> None:
    ada, name = Person("ada"), "only.xlsx"
    (made,) = office.turn(sdk, "excel", ada, ("create_workbook", {"path": name}))
    job = link_in(made, name).split("/")[2]
    # The answer does not wait for its record.
    deadline = time.monotonic() + RECORD_SECONDS
    while not (office.jobs / job / "metadata.json").is_file():
        assert time.monotonic() < deadline, "the record is not where this test looks for it"
        time.sleep(0.02)
    for path in ["request.json", "response.json", "metadata.json", "server.log", "../metadata.json", ""]:
        with Client(office.url) as client, client.send("GET", f"/files/{job}/{path}") as response:
            body = response.read()
            assert response.status == 404, f"{path}: HTTP {response.status} {body[:100]}"


CHECKS = [
    presentations_of_chats_are_disjoint,
    a_presentation_is_made_over_several_turns,
    a_link_keeps_what_it_named,
    a_workbook_survives_from_process_to_process,
    workbooks_of_chats_are_disjoint,
    a_presentation_stays_in_its_workspace,
    nothing_but_files_is_served,
]


def check(office: Office, sdk: str, work) -> bool:
    started = time.monotonic()
    name = f"{work.__name__.replace('_', ' ')}, {sdk}"
    try:
        work(office, sdk)
    except (AssertionError, OSError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"FAIL {name}: {type(error).__name__}: {str(error)[-1500:]}", flush=True)
        return False
    print(f"ok   {name} ({time.monotonic() - started:.1f} s)", flush=True)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--by", choices=["mcp", REST], default="mcp")
    parser.add_argument("--only", default="", help="a part of a check's name")
    options = parser.parse_args()
    ways = [REST] if options.by == REST else list(SDKS)
    installs = [*INSTALLS, *(SDKS[way] for way in ways if way in SDKS)]
    subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", *installs], check=True)
    with tempfile.TemporaryDirectory(prefix="pontoon-office-") as directory:
        office = Office(options.pontoon, pathlib.Path(directory), is_signed=options.by == "mcp")
        try:
            office.replica.wait_until_ready()
            works = [work for work in CHECKS if options.only in work.__name__]
            passed = [check(office, way, work) for way in ways for work in works]
        finally:
            complaints = office.replica.stop()
        for complaint in complaints:
            print(f"FAIL {complaint}")
        passed.append(not complaints)
        if not all(passed):
            print("last lines of the bridge's log:")
            print("".join(f"    {line[:300]}\n" for line in office.replica.log[-20:]), end="")
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
