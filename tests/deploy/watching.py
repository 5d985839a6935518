#!/usr/bin/env python3
"""Two bridges under load, watched by a real Prometheus with the files of `deploy/`.

    tests/deploy/watching.py --pontoon target/release/pontoon --fixture target/release/fixture-server

The shipped configuration is used but for its addresses, its key and its intervals, and the shipped rules but for how
long an alert has to hold before it fires. Every query of the dashboard has to have data while the load runs, and two alerts
have to fire: for a server that does not start, and for a bridge that was stopped. `promtool` judges all files, and the
page of `/metrics`. Needs Debian's `prometheus`, which has both. Ends with `N passed, N failed`.
"""

import argparse
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from files import CACHE, DEPLOY, PYTHON, REPOSITORY
from replicas import CallFailed, Client, Replica, Session, free_port

KEY = "a-key-that-only-prometheus-has"
LOAD_KEY = "a-key-of-those-who-call"
SETTINGS = {
    "MCPO_API_KEYS": f"prometheus={KEY},load={LOAD_KEY}",
    # Little enough that calls wait, and that some are refused.
    "MCPO_MAX_CONCURRENT": "2",
    "MCPO_QUEUE_WAIT": "1",
    "MCPO_FILE_EXPIRY": "4s",
    "MCPO_GC_INTERVAL": "1s",
    "MCPO_STATEFUL_CLEANUP_INTERVAL": "1",
}
CALLERS = 12
# Bounds of the load and of every wait, in seconds.
LOAD_SECONDS = 60
PATIENCE = 45
# What is 0 here, for the load makes no such trouble: a log without room, spans without a collector, files that cannot be removed,
# WebSockets, bodies that are not small. Every other query of the dashboard has to show what happened.
CALM = r"log_lines_dropped|spans_dropped|sweep_errors|websockets|held_bytes"


def use_install() -> None:
    """Goes on in the environment that has a YAML reader."""
    if pathlib.Path(sys.prefix).resolve() != (CACHE / "deploy").resolve():
        subprocess.run([REPOSITORY / "scripts" / "setup-tests.sh", "deploy"], check=True, stdout=subprocess.DEVNULL)
        os.execv(PYTHON, [str(PYTHON), __file__, *sys.argv[1:]])


def yaml_of(name: str) -> dict:
    import yaml

    return yaml.safe_load((DEPLOY / "prometheus" / name).read_text())


def rules() -> list[dict]:
    return [rule for group in yaml_of("rules.yml")["groups"] for rule in group["rules"]]


def until(what: str, holds, patience: float = PATIENCE):
    """What `holds` gives once that is true."""
    deadline = time.monotonic() + patience
    while not (found := holds()):
        assert time.monotonic() < deadline, f"after {patience:.0f} s: {what}"
        time.sleep(0.2)
    return found


# ---- the load ----


class Load:
    """Calls that are answered, wait, are refused, fail, and leave files, until it is stopped or its time is over."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self.deadline = time.monotonic() + LOAD_SECONDS
        self.is_over = threading.Event()
        self.answered = 0
        self.threads = [threading.Thread(target=self.run, args=[n], daemon=True) for n in range(CALLERS)]
        for thread in self.threads:
            thread.start()

    def run(self, number: int) -> None:
        address = self.addresses[number % len(self.addresses)]
        headers = {"Authorization": f"Bearer {LOAD_KEY}", "X-Session-Id": f"chat-{number}"}
        turn = 0
        while not self.is_over.is_set() and time.monotonic() < self.deadline:
            try:
                with Client(f"http://{address}", headers) as client:
                    self.turn(client, number, turn)
            except (CallFailed, OSError):
                # What fails is counted by the bridge, which is what this is about.
                pass
            turn += 1

    def turn(self, client: Client, number: int, turn: int) -> None:
        work = [
            lambda: client.call("stateless", "wait", {"ms": 1500}),
            lambda: client.call("stateful", "echo", {"text": "x"}),
            lambda: client.call("chatty", "echo", {"text": "x"}),
            lambda: self.fetch_a_file(client, number),
            lambda: client.call("stateless", "crash"),
            lambda: client.call("stateless", f"made-up-{turn}"),
            lambda: client.call("broken", "echo"),
            lambda: self.use_a_session(client),
        ]
        # Each begins elsewhere, so that all of it is under way at once.
        work[(number + turn) % len(work)]()
        self.answered += 1

    def fetch_a_file(self, client: Client, number: int) -> None:
        made = client.call("stateless", "write_file", {"name": f"{number}.txt", "text": "x" * 1000})
        path = re.search(r"/files/[^)\s\"]+", json.dumps(made))[0]
        with client.send("GET", path) as response:
            assert len(response.read()) == 1000 and response.status == 200, path

    def use_a_session(self, client: Client) -> None:
        session = Session(client, "stateless")
        session.text("echo", {"text": "x"})
        session.delete()

    def stop(self) -> None:
        self.is_over.set()
        for thread in self.threads:
            thread.join(PATIENCE)


# ---- the scene ----


class Prometheus:
    """A real one, on loopback, with the shipped files."""

    def __init__(self, directory: pathlib.Path, targets: list[str]) -> None:
        directory.mkdir()
        config = yaml_of("prometheus.yml")
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"][0]["static_configs"] = [{"targets": targets}]
        (directory / "prometheus.yml").write_text(json.dumps(config))
        (directory / "pontoon.key").write_text(KEY)
        shipped = (DEPLOY / "prometheus" / "rules.yml").read_text()
        # Nobody wants to wait for minutes here: that part is for `promtool test rules`.
        (directory / "rules.yml").write_text(re.sub(r"(?m)^(\s+for:) .*$", r"\1 1s", shipped))
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        self.log = (directory / "log").open("w+")
        words = [shutil.which("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        words += [f"--web.listen-address={address}", "--log.level=warn"]
        self.process = subprocess.Popen(
            words, cwd=directory, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL
        )

    def ask(self, path: str, **parameters):
        query = urllib.parse.urlencode(parameters, doseq=True)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error
        except OSError:
            assert self.process.poll() is None, self.said()
            return None

    def series(self, query: str) -> list[dict]:
        """The series that have a value: a quantile of nothing is none."""
        found = (self.ask("query", query=query) or {}).get("result", [])
        return [series for series in found if not math.isnan(float(series["value"][1]))]

    def firing(self) -> list[dict]:
        alerts = (self.ask("alerts") or {}).get("alerts", [])
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    def said(self) -> str:
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.log.close()


class Scene:
    """Two bridges that share a jobs directory, the load on them, and who watches."""

    def __init__(self, options: argparse.Namespace, directory: pathlib.Path) -> None:
        fixture = str(options.fixture.resolve())
        servers = {
            "stateless": {"command": fixture, "warm": 1},
            "stateful": {"command": fixture, "mode": "stateful", "idle_timeout": 2},
            # Its first line is no message, which has to be healed.
            "chatty": {"command": "/bin/sh", "args": ["-c", f"echo hello; exec '{fixture}'"]},
            "broken": {"command": "/bin/false"},
        }
        settings = SETTINGS | {"MCPO_JOBS_DIR": str(directory / "jobs")}
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.bridges = [
            Replica(options.pontoon.resolve(), directory / f"bridge-{n}", address, servers, settings)
            for n, address in enumerate(self.addresses)
        ]
        for bridge in self.bridges:
            bridge.wait_until_ready()
        self.prometheus = Prometheus(directory / "prometheus", self.addresses)
        self.load = Load(self.addresses)

    def page(self) -> str:
        with Client(f"http://{self.addresses[0]}", {"Authorization": f"Bearer {KEY}"}) as client:
            with client.send("GET", "/metrics") as response:
                assert response.status == 200, response.status
                return response.read().decode()

    def stop(self) -> list[str]:
        self.load.stop()
        self.prometheus.stop()
        return [complaint for bridge in self.bridges for complaint in bridge.stop()]


# ---- what Prometheus says of the files ----


def promtool(*words, cwd: pathlib.Path, text: str | None = None) -> None:
    ended = subprocess.run(["promtool", *words], cwd=cwd, input=text, capture_output=True, text=True, timeout=PATIENCE)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0 and "lint" not in said.lower(), said


def the_files_are_accepted(_: Scene) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory) / "prometheus"
        shutil.copytree(DEPLOY / "prometheus", place)
        (place / "pontoon.key").write_text(KEY)
        promtool("check", "rules", "--lint-fatal", "rules.yml", cwd=place)
        promtool("check", "config", "--lint-fatal", "prometheus.yml", cwd=place)


def the_alerts_are_tested_firing_and_not(_: Scene) -> None:
    promtool("test", "rules", "rules_test.yml", cwd=DEPLOY / "prometheus")
    tested = {
        (case["alertname"], bool(case["exp_alerts"]))
        for test in yaml_of("rules_test.yml")["tests"]
        for case in test["alert_rule_test"]
    }
    expected = {(rule["alert"], fires) for rule in rules() for fires in (True, False)}
    assert tested == expected, tested ^ expected


def every_alert_says_what_to_do(_: Scene) -> None:
    for rule in rules():
        runbook = rule["annotations"]["runbook"]
        page, section = re.fullmatch(r"[^\n]{20,}: (docs/[\w-]+\.md)#([\w-]+)", runbook).groups()
        titles = re.findall(r"(?m)^#+ (.*)$", (REPOSITORY / page).read_text())
        sections = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
        assert section in sections, f"{rule['alert']}: {page} has no section {section}"
    table = (REPOSITORY / "docs" / "operations.md").read_text()
    missing = [rule["alert"] for rule in rules() if f"| `{rule['alert']}` |" not in table]
    assert not missing, f"docs/operations.md says nothing of {missing}"


# ---- what it sees of the bridges ----


def both_bridges_are_scraped(scene: Scene) -> None:
    found = until("two bridges are up", lambda: len(scene.prometheus.series("up == 1")) == 2)
    assert found and not any(alert["alertname"] == "PontoonDown" for alert in scene.prometheus.firing())


def the_page_is_clean_and_documented(scene: Scene) -> None:
    until("there were calls", lambda: scene.load.answered > 20)
    page = scene.page()
    promtool("check", "metrics", cwd=REPOSITORY, text=page)
    families = set(re.findall(r"(?m)^# TYPE (\w+) ", page))
    documented = set(re.findall(r"`((?:pontoon|process)_\w+)`", (REPOSITORY / "docs" / "operations.md").read_text()))
    assert families == documented, f"docs/operations.md and the page differ in {families ^ documented}"


def queries_of(dashboard: dict) -> list[tuple[str, str]]:
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert all(panel["targets"] for panel in panels)
    return [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]


def dashboard() -> dict:
    return json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())


def every_query_of_the_dashboard_has_data(scene: Scene) -> None:
    queries = queries_of(dashboard())
    assert len(queries) > 50, len(queries)
    values = {"$__rate_interval": "15s", "$job": ".*", "$instance": ".*", "$server": ".*"}
    left = {}
    for title, query in queries:
        for variable, value in values.items():
            query = query.replace(variable, value)
        assert "$" not in query, query
        left[query] = title
    for bridge in scene.bridges:
        bridge.process.send_signal(signal.SIGHUP)

    def all_have_data() -> bool:
        for query in list(left):
            series = scene.prometheus.series(query)
            if any(float(it["value"][1]) > 0 for it in series) or series and re.search(CALM, query):
                del left[query]
        return not left

    try:
        until("some have none", all_have_data)
    except AssertionError:
        raise AssertionError("nothing, or 0, for\n" + "\n".join(f"  {title}: {query}" for query, title in left.items()))


def every_variable_of_the_dashboard_has_values(scene: Scene) -> None:
    variables = dashboard()["templating"]["list"]
    assert variables[0]["type"] == "datasource" and variables[0]["query"] == "prometheus"
    servers = {"stateless", "stateful", "chatty", "broken"}
    expected = {"job": {"pontoon"}, "instance": set(scene.addresses), "server": servers}
    for variable in variables[1:]:
        query = variable["query"]["query"].replace("$job", ".*").replace("$instance", ".*")
        series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
        found = scene.prometheus.ask(f"label/{label}/values", **{"match[]": series})
        assert set(found) == expected[variable["name"]], (variable["name"], found)


def every_metric_that_is_asked_for_is_there(scene: Scene) -> None:
    known = set(re.findall(r"(?m)^# TYPE (\w+) ", scene.page()))
    asked = " ".join([query for _, query in queries_of(dashboard())] + [rule["expr"] for rule in rules()])
    names = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\b(?:pontoon|process)_\w+", asked)}
    assert names <= known, names - known
    # How much address space a program has says nothing of how it is.
    unseen = known - names - {"process_virtual_memory_bytes"}
    assert not unseen, f"the dashboard does not show {unseen}"


def a_server_that_does_not_start_is_told(scene: Scene) -> None:
    expected = {"alertname": "PontoonServerNotReady", "server": "broken", "state": "failed", "severity": "warning"}
    found = until("both bridges tell", lambda: [
        alert for alert in scene.prometheus.firing() if expected.items() <= alert.items()
    ])
    assert {alert["instance"] for alert in found} <= set(scene.addresses), found


def a_bridge_that_is_gone_is_told(scene: Scene) -> None:
    """The last one, for it stops the second bridge."""
    scene.load.stop()
    complaints = scene.bridges.pop().stop()
    assert not complaints, complaints
    gone = {"alertname": "PontoonDown", "instance": scene.addresses[1]}
    until("the alert", lambda: any(gone.items() <= alert.items() for alert in scene.prometheus.firing()))
    still = [alert for alert in scene.prometheus.firing() if alert["alertname"] == "PontoonDown"]
    assert len(still) == 1, f"only that one is gone: {still}"


CHECKS = [
    the_files_are_accepted,
    the_alerts_are_tested_firing_and_not,
    every_alert_says_what_to_do,
    both_bridges_are_scraped,
    the_page_is_clean_and_documented,
    every_query_of_the_dashboard_has_data,
    every_variable_of_the_dashboard_has_values,
    every_metric_that_is_asked_for_is_there,
    a_server_that_does_not_start_is_told,
    a_bridge_that_is_gone_is_told,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", type=pathlib.Path, required=True)
    parser.add_argument("--fixture", type=pathlib.Path, required=True)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        scene = Scene(options, pathlib.Path(directory))
        try:
            for check in CHECKS:
                began = time.monotonic()
                try:
                    check(scene)
                    print(f"ok      {check.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
                except AssertionError as error:
                    failed += 1
                    print(f"FAILED  {check.__name__}: {error}", flush=True)
        finally:
            complaints = scene.stop()
    for complaint in complaints:
        failed += 1
        print(f"FAILED  {complaint}")
    print(f"{len(CHECKS) - min(failed, len(CHECKS))} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    use_install()
    main()
