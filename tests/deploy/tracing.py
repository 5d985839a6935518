#!/usr/bin/env python3
"""One call through real nginx, and what a real collector of OpenTelemetry (rotel) gets of it.

    tests/deploy/tracing.py --pontoon target/release/pontoon --fixture target/release/fixture-server

The client sends a `traceparent`. Its trace id has to be in the log of the bridge, in the job, in the spans that the collector
took, and in what the server was told. `scripts/setup-tests.sh rotel` installs the collector; `--rotel` names another.
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

from front import Nginx, OpenWebUi
from nginx import programs
from replicas import Client, Replica, free_port

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SECRET = "hunter2-hunter2"
SECONDS = 30


class Rotel:
    """The collector, which prints every span that it takes."""

    def __init__(self, program: pathlib.Path, directory: pathlib.Path) -> None:
        self.port = free_port()
        self.log = directory / "rotel.log"
        command = [program, "start", "--otlp-http-endpoint", f"127.0.0.1:{self.port}"]
        command += ["--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}", "--pid-file", directory / "rotel.pid"]
        command += ["--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until("rotel listens", self.listens)

    def listens(self) -> bool:
        assert self.process.poll() is None, f"rotel ended: {self.printed()}"
        try:
            with Client(f"http://127.0.0.1:{self.port}", timeout=5) as client:
                client.status("GET", "/")
            return True
        except OSError:
            return False

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def spans(self) -> dict[str, dict[str, str]]:
        """What it printed of each span of our trace, by the kind and the name of the span."""
        spans = {}
        for text in re.split(r"^Span #\d+\s*$", self.printed(), flags=re.M)[1:]:
            fields = dict(re.findall(r"^\s+([A-Z][A-Za-z ]*?)\s*: (.*)$", text, flags=re.M))
            attributes = dict(re.findall(r"^\s+-> ([\w.]+): Str\((.*)\)$", text, flags=re.M))
            if fields.get("Trace ID") == TRACE:
                spans[f"{fields['Kind']} {fields['Name']}"] = fields | attributes
        return spans

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def until(what: str, holds) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {what}"
        time.sleep(0.05)


class Scene:
    """rotel, one bridge that sends it spans, and nginx before the bridge."""

    def __init__(self, options: argparse.Namespace, directory: pathlib.Path) -> None:
        self.jobs = directory / "jobs"
        self.rotel = Rotel(options.rotel, directory)
        self.openwebui = OpenWebUi()
        listen = f"127.0.0.1:{free_port()}"
        settings = {
            "MCPO_JOBS_DIR": str(self.jobs),
            "MCPO_TRUSTED_PROXIES": "127.0.0.1",
            "MCPO_LOG_LEVEL": "DEBUG",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.rotel.port}",
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={SECRET}",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        }
        servers = {"fixture": {"command": str(options.fixture)}}
        self.replica = Replica(options.pontoon, directory / "replica", listen, servers, settings)
        # All three places of the shipped file are the one bridge.
        self.nginx = Nginx(
            options.nginx[0], "nginx-debian.conf", directory / "nginx", [listen] * 3, self.openwebui.address
        )

    def start(self) -> None:
        self.replica.wait_until_ready()
        self.nginx.start()

    def call(self) -> None:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        with Client(self.nginx.url, headers=headers) as client:
            self.environment = json.loads(client.text("fixture", "environment"))
            client.call("fixture", "write_file", {"name": "a.txt", "text": SECRET})

    def stop(self) -> list[str]:
        self.nginx.stop()
        complaints = self.replica.stop()
        self.openwebui.shutdown()
        self.rotel.stop()
        return complaints


def the_collector_has_the_spans_in_the_trace_of_the_client(scene: Scene) -> None:
    wanted = ["SPAN_KIND_SERVER tools/call write_file", "SPAN_KIND_CLIENT tools/call write_file", "SPAN_KIND_INTERNAL files"]
    until(f"{wanted} are there: {scene.rotel.printed()}", lambda: all(name in scene.rotel.spans() for name in wanted))
    spans = scene.rotel.spans()
    server, client, files = (spans[name] for name in wanted)
    assert server["Parent ID"] == PARENT, server
    assert client["Parent ID"] == files["Parent ID"] == server["ID"], spans
    assert server["gen_ai.tool.name"] == "write_file" and server["mcp.method.name"] == "tools/call", server
    assert server["network.transport"] == "tcp" and client["network.transport"] == "pipe", spans


def the_same_trace_is_in_the_log(scene: Scene) -> None:
    lines = [json.loads(line) for line in scene.replica.log if line.startswith("{")]
    found = [line for line in lines if line.get("trace_id") == TRACE]
    assert any(line.get("message") == "request answered" for line in found), f"{len(lines)} lines, and {found}"


def the_job_and_the_spans_name_each_other(scene: Scene) -> None:
    jobs = [json.loads(path.read_text()) for path in scene.jobs.glob("*/metadata.json")]
    ours = {job["job_id"] for job in jobs if job["trace_id"] == TRACE}
    told = {span["pontoon.job.id"] for span in scene.rotel.spans().values() if "pontoon.job.id" in span}
    assert len(ours) == 2 and ours == told, f"{ours} and {told}"


def the_process_was_told_of_the_trace(scene: Scene) -> None:
    server = scene.rotel.spans()["SPAN_KIND_SERVER tools/call environment"]
    assert scene.environment["TRACEPARENT"] == f"00-{TRACE}-{server['ID']}-01", scene.environment
    assert not any(name.startswith("OTEL_") for name in scene.environment), scene.environment


def no_argument_and_no_key_is_in_what_the_collector_took(scene: Scene) -> None:
    printed = scene.rotel.printed()
    assert "deployment.environment.name" in printed, printed
    assert SECRET not in printed and SECRET not in "\n".join(scene.replica.log)


CHECKS = [
    the_collector_has_the_spans_in_the_trace_of_the_client,
    the_same_trace_is_in_the_log,
    the_job_and_the_spans_name_each_other,
    the_process_was_told_of_the_trace,
    no_argument_and_no_key_is_in_what_the_collector_took,
]


def check(scene: Scene, work) -> bool:
    name = work.__name__.replace("_", " ")
    try:
        work(scene)
    except AssertionError as error:
        print(f"FAIL {name}: {error}")
        return False
    print(f"ok   {name}", flush=True)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = pathlib.Path(os.environ.get("PONTOON_TEST_CACHE", pathlib.Path.home() / ".cache/pontoon-test"))
    installed = next(cache.glob("rotel/lib/python*/site-packages/rotel/rotel-agent"), None)
    parser.add_argument("--rotel", type=pathlib.Path, default=installed, help="the collector")
    options = programs(parser)
    if options.rotel is None:
        sys.exit("no rotel: scripts/setup-tests.sh rotel installs it")
    with tempfile.TemporaryDirectory(prefix="pontoon-tracing-") as directory:
        scene = Scene(options, pathlib.Path(directory))
        try:
            scene.start()
            scene.call()
            passed = [check(scene, work) for work in CHECKS]
        finally:
            complaints = scene.stop()
    for complaint in complaints:
        print(f"FAIL {complaint}")
    passed.append(not complaints)
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
