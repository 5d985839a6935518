#!/usr/bin/env python3
"""Real nginx with the shipped configuration, before three replicas on this machine.

    tests/deploy/nginx.py --pontoon target/release/pontoon --fixture target/release/fixture-server

`nginx-debian.conf` is run by every nginx from 1.22 on, `nginx.conf` as well from 1.29.6 on, with a small
DNS server in the place of Docker's. `--nginx` (or PONTOON_NGINX) names the program; several may be given.
A file that none of them can run is told as `skipped: ...`. Ends with `N passed, N failed`.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
import uuid

from front import Names, Nginx, OpenWebUi, version_of
from replicas import CallFailed, Client, Replica, Session, free_port, modern_call

STEPS = 8
STEP_MS = 150
CHATS = 30
# More than sockets hold, and less than MCPO_MAX_BODY.
LARGE = 8 << 20
CALLERS = 24
LOAD_SECONDS = 6
# `sticky learn`, and names that are asked for again.
LEARNS = (1, 29, 6)


class Scene:
    """Three replicas with one jobs directory, nginx before them, and Open WebUI's stand-in."""

    def __init__(self, options: argparse.Namespace, program: str, main: str, directory: pathlib.Path) -> None:
        self.names = None
        self.directory = directory
        self.openwebui = OpenWebUi()
        port = free_port()
        if main == "nginx.conf":
            listening = [f"127.0.0.{n}:{port}" for n in (11, 12, 13)]
            addresses = [listen.rsplit(":", 1)[0] for listen in listening]
            self.names = Names({"mcpo-bridge": addresses, "openwebui": ["127.0.0.1"]})
        else:
            listening = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        fixture = {"command": str(options.fixture)}
        servers = {
            "stateless": fixture,
            "stateful": fixture | {"mode": "stateful"},
            "by-address": fixture | {"mode": "stateful", "session_key": "ip"},
        }
        settings = {
            "MCPO_MAX_CONCURRENT": "64",
            "MCPO_JOBS_DIR": str(directory / "jobs"),
            "MCPO_TRUSTED_PROXIES": "127.0.0.1",
        }
        self.replicas = [
            Replica(options.pontoon, directory / f"replica-{n}", listen, servers, settings)
            for n, listen in enumerate(listening)
        ]
        self.nginx = Nginx(
            program,
            main,
            directory / "nginx",
            listening,
            self.openwebui.address,
            self.names.port if self.names else None,
        )

    def start(self) -> None:
        for replica in self.replicas:
            replica.wait_until_ready()
        self.nginx.start()

    def stop(self) -> list[str]:
        self.nginx.stop()
        complaints = [complaint for replica in self.replicas for complaint in replica.stop()]
        self.openwebui.shutdown()
        if self.names:
            self.names.shutdown()
        return complaints

    def client(self, **options) -> Client:
        return Client(self.nginx.url, **options)

    def owner_of(self, pid: int) -> int:
        owners = [n for n, replica in enumerate(self.replicas) if replica.owns(pid)]
        assert len(owners) == 1, f"process {pid} belongs to replicas {owners}"
        return owners[0]


def chat() -> dict:
    return {"X-OpenWebUI-User-Id": "ada", "X-OpenWebUI-Chat-Id": str(uuid.uuid4())}


def progress_is_not_buffered(scene: Scene) -> None:
    body, headers = modern_call("count", {"steps": STEPS, "delay_ms": STEP_MS}, progress="p")
    arrivals = []
    with scene.client() as client, client.send("POST", "/mcp/stateless", body, headers) as response:
        kind = response.headers.get_content_type()
        assert kind == "text/event-stream", f"{kind}: no stream"
        while line := response.readline():
            if b'"notifications/progress"' in line:
                arrivals.append(time.monotonic())
    assert len(arrivals) == STEPS, f"{len(arrivals)} of {STEPS} steps told"
    assert_spread(arrivals)


def what_open_webui_streams_is_not_buffered(scene: Scene) -> None:
    steps, arrivals = STEPS // 2, []
    with scene.client() as client, client.send("GET", f"/stream?steps={steps}&ms={STEP_MS}") as response:
        while response.readline():
            arrivals.append(time.monotonic())
    assert len(arrivals) == steps, f"{len(arrivals)} of {steps} lines came"
    assert_spread(arrivals)


def a_slow_download_is_not_spooled(scene: Scene) -> None:
    """nginx passes small pieces on at once even where it buffers, so progress alone does not tell.

    But where it buffers it takes what a client is too slow for, writes it to disk, and says so in its log.
    """
    text = "x" * LARGE
    with scene.client(headers=chat()) as client:
        path = link_in(client.call("stateless", "write_file", {"name": "large.txt", "text": text}))
    with socket.socket() as stream:
        # As little as the system gives, so that nginx has to wait for us.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.settimeout(10)
        stream.connect(("127.0.0.1", scene.nginx.port))
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert stream.recv(64).startswith(b"HTTP/1.1 200")
        # Nothing tells that nginx did not do it, so it gets the time that it would need.
        time.sleep(0.3)
    spooled = [line for line in scene.nginx.errors().splitlines() if "upstream response is buffered" in line]
    assert not spooled, spooled[0]


def assert_spread(arrivals: list[float]) -> None:
    """What was made bit by bit must not arrive at once."""
    spread = arrivals[-1] - arrivals[0]
    made = (len(arrivals) - 1) * STEP_MS / 1000
    assert spread > made / 2, f"made over {made:.2f} s, but arrived within {spread:.3f} s"


def a_chat_stays_with_its_replica(scene: Scene) -> None:
    owners = set()
    for headers in [chat() for _ in range(CHATS)]:
        pids = set()
        for _ in range(4):
            # A new connection each time, as Open WebUI makes them.
            with scene.client(headers=headers) as client:
                pids.add(int(client.text("stateful", "pid")))
        assert len(pids) == 1, f"one chat was served by the processes {pids}"
        owners.add(scene.owner_of(pids.pop()))
    assert owners == {0, 1, 2}, f"{CHATS} chats went to the replicas {owners} only"


def replicas_may_come_and_go(scene: Scene) -> None:
    """One is taken out of the DNS and comes back. The conversations of the others must not notice."""
    everybody = scene.names.records["mcpo-bridge"]
    before = [(headers, replica_of(scene, headers)) for headers in [chat() for _ in range(CHATS)]]
    stay = [(headers, replica) for headers, replica in before if replica != 2]
    assert 0 < len(stay) < CHATS, f"{len(stay)} of {CHATS} chats are at two of three replicas"
    try:
        scene.names.records["mcpo-bridge"] = everybody[:2]
        wait_for_replicas(scene, {0, 1})
    finally:
        scene.names.records["mcpo-bridge"] = everybody
    wait_for_replicas(scene, {0, 1, 2})
    moved = [now for headers, replica in stay if (now := replica_of(scene, headers)) != replica]
    assert not moved, f"{len(moved)} of {len(stay)} chats moved, though their replicas were always there"


def replica_of(scene: Scene, headers: dict) -> int:
    with scene.client(headers=headers) as client:
        return scene.owner_of(int(client.text("stateful", "pid")))


def wait_for_replicas(scene: Scene, expected: set[int]) -> None:
    """Until new chats go to these replicas and to no other. nginx asks every five seconds."""
    deadline = time.monotonic() + 15
    while (found := {replica_of(scene, chat()) for _ in range(9)}) != expected:
        assert time.monotonic() < deadline, f"new chats go to the replicas {found} instead of {expected}"
        time.sleep(0.5)


def a_legacy_session_stays_with_its_replica(scene: Scene) -> None:
    for headers in [{}, chat(), {"X-Session-Id": str(uuid.uuid4())}] * 3:
        with scene.client(headers=headers) as client:
            session = Session(client, "stateful")
        pids = set()
        for _ in range(4):
            with scene.client(headers=headers) as client:
                session.client = client
                pids.add(session.text("pid"))
        assert len(pids) == 1, f"one session was served by the processes {pids}"
        with scene.client(headers=headers) as client:
            session.client = client
            status = session.delete()
        assert status < 300, f"the session ended with HTTP {status}"


def the_deprecated_transport_finds_its_way_back(scene: Scene) -> None:
    """Its stream and its messages are different requests, and only one replica knows the stream."""
    for source in [f"127.0.0.{n}" for n in range(31, 37)]:
        with scene.client(source=source, timeout=10) as listening, listening.send("GET", "/sse/stateless") as stream:
            place = next_data(stream)
            message = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
            opening = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
            opened = message | {"id": 6, "method": "initialize", "params": opening}
            for sent in [opened, message]:
                with scene.client(source=source, headers={"Content-Type": "application/json"}) as client:
                    with client.send("POST", place, json.dumps(sent).encode()) as response:
                        assert response.status == 202, f"{place}: HTTP {response.status} {response.read()[:200]}"
                answer = json.loads(next_data(stream))
                assert answer["id"] == sent["id"] and "result" in answer, answer


def next_data(stream) -> str:
    while line := stream.readline().decode():
        if line.startswith("data:"):
            return line[5:].strip()
    raise AssertionError("the stream ended")


def clients_without_a_name_are_told_apart_by_address(scene: Scene) -> None:
    seen = {}
    for source in ["127.0.0.21", "127.0.0.22"]:
        pids = set()
        for claimed in ["", "127.0.0.21", "127.0.0.22", "203.0.113.9, 127.0.0.21"]:
            headers = {"X-Forwarded-For": claimed, "X-Real-IP": claimed} if claimed else {}
            with scene.client(headers=headers, source=source) as client:
                pids.add(client.text("by-address", "pid"))
        assert len(pids) == 1, f"{source} was taken for somebody else: processes {pids}"
        seen[source] = pids.pop()
    assert len(set(seen.values())) == 2, f"two addresses share a process: {seen}"


def forged_addresses_are_replaced(scene: Scene) -> None:
    forged = {"X-Forwarded-For": "203.0.113.9", "X-Real-IP": "203.0.113.9", "Forwarded": "for=203.0.113.9"}
    with scene.client(headers=forged, source="127.0.0.21") as client, client.send("GET", "/any/path") as response:
        told = response.read().decode()
    assert "203.0.113.9" not in told, told
    assert "X-Forwarded-For: 127.0.0.21" in told and "X-Real-IP: 127.0.0.21" in told, told


def websockets_reach_open_webui(scene: Scene) -> None:
    with socket.create_connection(("127.0.0.1", scene.nginx.port), 5) as stream:
        stream.settimeout(5)
        head = "GET /ws/socket.io HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        stream.sendall(head.encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += stream.recv(4096)
        assert answer.startswith(b"HTTP/1.1 101"), answer
        stream.sendall("桟橋".encode())
        assert stream.recv(64) == "桟橋".encode()


def mcp_over_websocket_reaches_a_replica(scene: Scene) -> None:
    """At a path of its own: /ws/ is Open WebUI's."""
    with socket.create_connection(("127.0.0.1", scene.nginx.port), 5) as stream:
        stream.settimeout(10)
        stream.sendall((
            f"GET /mcp-ws/stateless HTTP/1.1\r\nHost: 127.0.0.1:{scene.nginx.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mcp\r\n\r\n"
        ).encode())
        answer = stream.makefile("rb")
        status = answer.readline()
        headers = list(iter(lambda: answer.readline().strip().lower(), b""))
        assert status.startswith(b"HTTP/1.1 101") and b"sec-websocket-protocol: mcp" in headers, (status, headers)

        def ask(number: int, method: str, params: dict) -> dict:
            request = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
            # One frame of text, longer than 125 bytes, masked with zeros.
            stream.sendall(bytes([0x81, 0xFE]) + len(request).to_bytes(2, "big") + bytes(4) + request)
            kind, length = answer.read(2)
            length = int.from_bytes(answer.read(2), "big") if length == 126 else length
            heard = json.loads(answer.read(length))
            assert kind == 0x81 and heard["id"] == number and "result" in heard, heard
            return heard["result"]

        ask(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}})
        text = "桟橋" * 20
        result = ask(2, "tools/call", {"name": "echo", "arguments": {"text": text}})
        assert result["content"][0]["text"] == text, result


def chats_over_rest_stay_and_their_files_come_back(scene: Scene) -> None:
    """As Open WebUI has an OpenAPI server: the document without a chat, calls with one, each on a new connection."""
    with scene.client() as client, client.send("GET", "/mcpo/stateful/openapi.json") as response:
        document = json.loads(response.read())
    assert document["servers"] == [{"url": "/mcpo/stateful"}] and "/pid" in document["paths"], document
    owners = set()
    for headers in [chat() for _ in range(CHATS)]:
        pids = {rest(scene, "stateful/pid", {}, headers) for _ in range(3)}
        assert len(pids) == 1, f"one chat was served by the processes {pids}"
        owners.add(scene.owner_of(int(pids.pop())))
    assert owners == {0, 1, 2}, f"{CHATS} chats went to the replicas {owners} only"
    result = rest(scene, "stateless/write_file", {"name": "a b.txt", "text": "by REST"}, chat())
    with scene.client() as client, client.send("GET", link_in(result)) as response:
        assert response.status == 200 and response.read() == b"by REST"


def rest(scene: Scene, path: str, arguments: dict, headers: dict) -> object:
    headers = {"Content-Type": "application/json"} | headers
    with scene.client() as client, client.send("POST", f"/mcpo/{path}", json.dumps(arguments).encode(), headers) as response:
        body = response.read()
        assert response.status == 200, f"{path}: {response.status} {body[:300]}"
        return json.loads(body)


def any_replica_serves_a_file(scene: Scene) -> None:
    name, text = "報告 1.txt", "made by one replica, served by all"
    with scene.client(headers=chat()) as client:
        result = client.call("stateless", "write_file", {"name": name, "text": text})
    path = link_in(result)
    for url in [scene.nginx.url] * 4 + [f"http://{replica.listen}" for replica in scene.replicas]:
        with Client(url) as client, client.send("GET", path) as response:
            body = response.read()
            assert response.status == 200 and body == text.encode(), f"{url}: {response.status} {body[:200]}"
    with scene.client() as client, client.send("HEAD", path) as response:
        assert response.status == 200 and int(response.headers["Content-Length"]) == len(text)
    with scene.client() as client, client.send("DELETE", path) as response:
        assert response.status == 403, f"DELETE of a file: HTTP {response.status}"


def one_id_joins_the_logs_the_journal_and_the_job(scene: Scene) -> None:
    theirs = uuid.uuid4().hex
    for sent, expected in [
        ({}, None),
        ({"traceparent": f"00-{theirs}-00f067aa0ba902b7-01"}, theirs),
        # What is wrong is replaced, and not passed on.
        ({"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"}, None),
    ]:
        headers, text = chat() | sent, str(uuid.uuid4())
        body, modern = modern_call("write_file", {"name": "a.txt", "text": text})
        with scene.client() as client, client.send("POST", "/mcp/stateless", body, headers | modern) as response:
            trace, job = response.headers["traceparent"].split("-")[1], response.headers["X-MCPO-Job-Id"]
            assert response.status == 200 and b'"error"' not in response.read()
        assert re.fullmatch("[0-9a-f]{32}", trace) and expected in (None, trace), (sent, trace)
        told = wait_for(f"nginx's line of {trace}", lambda: [it for it in scene.nginx.accesses() if it[-1] == trace])
        assert len(told) == 1 and told[0][2:5] == ["POST", "/mcp/stateless", "200"], told
        lines = wait_for(f"the bridge's line of {trace}", lambda: calls_logged(scene, trace))
        assert len(lines) == 1, lines
        line = lines[0]
        assert (line["server"], line["tool"], line["status"], line["files"]) == ("stateless", "write_file", "completed", 1), line
        assert (line["user"], line["job_id"]) == ("ada", job) and text not in json.dumps(line), line
        jobs = scene.directory / "jobs"
        record = json.loads(wait_for("the record of the job", (jobs / job / "metadata.json").read_text))
        assert (record["trace_id"], record["tool"], record["user"]) == (trace, "write_file", "ada"), record
        journal = [json.loads(line) for it in (jobs / ".journal").iterdir() for line in it.read_text().splitlines()]
        assert [it["job_id"] for it in journal if it.get("trace_id") == trace] == [job], journal[-3:]


def calls_logged(scene: Scene, trace: str) -> list[dict]:
    lines = [line for replica in scene.replicas for line in list(replica.log) if trace in line]
    return [line for line in map(json.loads, lines) if line["message"] == "call"]


def wait_for(what: str, look):
    deadline = time.monotonic() + 10
    while True:
        try:
            if found := look():
                return found
        except FileNotFoundError:
            pass
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(0.02)


def link_in(result: dict) -> str:
    """The path of the one download that a result names."""
    links = set(re.findall(r"/files/[0-9a-f-]{36}/[^\s\"\\)>#]+", json.dumps(result, ensure_ascii=False)))
    assert len(links) == 1, f"{len(links)} links in {result}"
    return links.pop()


def tls_answers(scene: Scene) -> None:
    with Client(scene.nginx.tls_url, chat(), trust=scene.nginx.certificate) as client:
        assert client.text("stateless", "echo", {"text": "over TLS"}) == "over TLS"
        with client.send("GET", "/") as response:
            assert "X-Forwarded-Proto: https" in response.read().decode()


def port_80_can_be_sent_to_tls(scene: Scene) -> None:
    switch = scene.nginx.directory / "tls" / "redirect.inc"
    shutil.copy(f"{switch}.example", switch)
    scene.nginx.reload()
    try:
        with scene.client(headers={"Host": "chat.example.org"}) as client, client.send("GET", "/x?y=1") as response:
            assert response.status == 301, f"HTTP {response.status}"
            assert response.headers["Location"] == "https://chat.example.org/x?y=1", response.headers["Location"]
        with scene.client(headers={"Host": "nginx"}) as client, client.send("GET", "/") as response:
            assert response.status == 200, "what Open WebUI calls inside must not be redirected"
    finally:
        switch.unlink()
        scene.nginx.reload()


def answers_of_the_bridge_pass_unchanged(scene: Scene) -> None:
    for method, path, body in [("GET", "/mcp/nobody", None), ("POST", "/mcp/stateless", b"{"), ("PUT", "/mcp/x", None)]:
        answers = []
        for url in [scene.nginx.url, f"http://{scene.replicas[0].listen}"]:
            with Client(url) as client, client.send(method, path, body) as response:
                answers.append((response.status, response.read()))
        assert answers[0] == answers[1] and answers[0][0] >= 400, f"{method} {path}: {answers}"


def a_killed_replica_takes_only_what_it_had(scene: Scene) -> None:
    """Every call of `CALLERS` clients is stamped; a replica dies in the middle."""
    until = time.monotonic() + LOAD_SECONDS
    dying, dead = threading.Event(), threading.Event()
    failures, counts = [], []
    victim = scene.replicas[1]

    def calls() -> None:
        headers, made = chat(), 0
        client = scene.client(headers=headers)
        while time.monotonic() < until:
            began = "after" if dead.is_set() else "during" if dying.is_set() else "before"
            try:
                assert client.text("stateless", "echo", {"text": headers["X-OpenWebUI-Chat-Id"]}) in headers.values()
                made += 1
            except (CallFailed, OSError, AssertionError) as error:
                failures.append((began, headers["X-OpenWebUI-Chat-Id"], str(error)))
                client.connection.close()
        counts.append(made)
        client.connection.close()

    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        running = [pool.submit(calls) for _ in range(CALLERS)]
        time.sleep(LOAD_SECONDS / 3)
        dying.set()
        victim.kill()
        dead.set()
        for one in running:
            one.result()
    late = [failure for failure in failures if failure[0] == "after"]
    assert not late, f"{len(late)} calls failed that began after the death: {late[:3]}"
    # The system closes the connections of what it kills one after another. Within these milliseconds a client may
    # lose a second call, which went into one that was still open.
    chats = [failed for began, failed, _ in failures if began == "before"]
    assert len(chats) == len(set(chats)), f"a client lost more than the one call it had open: {failures}"
    assert len(chats) < CALLERS, f"every client lost a call, though two replicas live: {failures[:3]}"
    print(f"     {sum(counts)} calls, {len(failures)} were in the replica that was killed", flush=True)
    # Whose replica is gone is served by another, and stays with that one.
    for headers in [chat() for _ in range(9)]:
        pids = set()
        for _ in range(3):
            with scene.client(headers=headers) as client:
                pids.add(client.text("stateful", "pid"))
        assert len(pids) == 1, f"after the death one chat was served by {pids}"


def a_replica_that_died_idle_costs_no_call(scene: Scene) -> None:
    """No failed call has told nginx yet: each that comes to the dead one must go on to another."""
    scene.replicas[2].kill()
    for headers in [chat() for _ in range(CHATS)]:
        with scene.client(headers=headers) as client:
            assert client.text("stateless", "echo", {"text": "still here"}) == "still here"


CHECKS = [
    progress_is_not_buffered,
    what_open_webui_streams_is_not_buffered,
    a_slow_download_is_not_spooled,
    a_chat_stays_with_its_replica,
    a_legacy_session_stays_with_its_replica,
    the_deprecated_transport_finds_its_way_back,
    clients_without_a_name_are_told_apart_by_address,
    forged_addresses_are_replaced,
    websockets_reach_open_webui,
    mcp_over_websocket_reaches_a_replica,
    any_replica_serves_a_file,
    chats_over_rest_stay_and_their_files_come_back,
    tls_answers,
    port_80_can_be_sent_to_tls,
    answers_of_the_bridge_pass_unchanged,
    one_id_joins_the_logs_the_journal_and_the_job,
    replicas_may_come_and_go,
    # The last ones: a replica is gone after each.
    a_killed_replica_takes_only_what_it_had,
    a_replica_that_died_idle_costs_no_call,
]


def check(scene: Scene, work) -> bool:
    started = time.monotonic()
    name = work.__name__.replace("_", " ")
    try:
        work(scene)
    except (AssertionError, CallFailed, OSError) as error:
        print(f"FAIL {name}: {type(error).__name__}: {str(error)[:800]}", flush=True)
        return False
    print(f"ok   {name} ({time.monotonic() - started:.2f} s)", flush=True)
    return True


def written(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def run(options: argparse.Namespace, program: str, main: str) -> list[bool]:
    print(f"# nginx {written(version_of(program))} with {main}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pontoon-deploy-") as directory:
        scene = Scene(options, program, main, pathlib.Path(directory))
        try:
            scene.start()
            works = [work for work in CHECKS if scene.names or work is not replicas_may_come_and_go]
            passed = [check(scene, work) for work in works if options.only in work.__name__]
        finally:
            complaints = scene.stop()
        for complaint in complaints:
            print(f"FAIL {complaint}")
        if not all(passed):
            print("\n".join(f"     {line}" for line in scene.nginx.errors().splitlines()[-5:]))
    return passed + [not complaints]


def programs(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """What is to be tried, from the command line."""
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--fixture", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    named = os.environ.get("PONTOON_NGINX", shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"))
    parser.add_argument("--nginx", nargs="*", default=named.split() if named else [], help="programs to try")
    options = parser.parse_args()
    if not options.nginx:
        sys.exit("no nginx: install it (apt install nginx-light) or name it with --nginx")
    return options


def shipped_files(options: argparse.Namespace):
    """Every nginx with each shipped file that it can run."""
    learning = [program for program in options.nginx if version_of(program) >= LEARNS]
    for program in options.nginx:
        for shipped in ["nginx-debian.conf"] + ["nginx.conf"] * (program in learning):
            yield program, shipped
    if not learning:
        versions = ", ".join(written(version_of(program)) for program in options.nginx)
        print(
            f"skipped: nginx.conf, which compose mounts, was not run: it needs nginx {written(LEARNS)} or newer "
            f"(sticky learn), and here is {versions}. PONTOON_NGINX may name a newer one."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of a check's name")
    options = programs(parser)
    passed = []
    for program, shipped in shipped_files(options):
        passed += run(options, program, shipped)
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
