#!/usr/bin/env python3
"""Runs the MCP conformance suite against a server at a URL, and judges what it says.

The suite (`@modelcontextprotocol/conformance`) speaks HTTP only and needs Node 22.
`scripts/setup-tests.sh node22 conformance` installs both. `all.py` runs every set-up; for one:

    run.py --url http://127.0.0.1:PORT/mcp/fixture \\
        --node ~/.cache/pontoon-test/node22/bin/node --suite ~/.cache/pontoon-test/conformance \\
        --requirements 2025-11-25 --expected expected-both.toml

A failed check must be expected, with a written reason, and an expected one must fail: otherwise
the run exits with 1. The file of expected failures has one table per requirement set, with the
scenario, or the scenario and one check of it, as the key:

    [2026-07-28]
    "tasks-lifecycle" = "the fixture has no tasks"
    "server-stateless/sep-2575-server-implements-discover" = "why"

`--scenario NAME` (may be repeated) runs and judges those alone, for work on one of them.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

# The suite writes one directory per scenario, named for it and for the moment.
RESULT_DIRECTORY = re.compile(r"^server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d+Z$")
# A scenario that ran into the suite's own time limit leaves no checks behind.
NO_RESULT = "no-result"


@dataclasses.dataclass
class Scenario:
    """What one scenario's checks came to."""

    name: str
    is_required: bool
    passed: int = 0
    warned: int = 0
    # Messages of the failed checks, under the check's id.
    failed: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def failures(self) -> int:
        return sum(len(messages) for messages in self.failed.values())


def main() -> int:
    arguments = parse_arguments()
    package = find_package(arguments.suite)
    required, unscored = scenarios_of(package / "requirements" / f"{arguments.requirements}.yaml")
    if arguments.scenario:
        required = [name for name in required if name in arguments.scenario]
        unscored = [name for name in unscored if name in arguments.scenario]
    expected = read_expected(arguments.expected, arguments.requirements)

    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        output = arguments.output or pathlib.Path(scratch)
        output.mkdir(parents=True, exist_ok=True)
        run_suite(arguments, package, output)
        checks = read_checks(output)

    scenarios = [tally(name, True, checks.get(name)) for name in required]
    # An unscored scenario of another suite version may be missing without a fault of ours.
    scenarios += [tally(name, False, checks[name]) for name in unscored if name in checks]
    print_table(scenarios)
    if arguments.scenario:
        expected = {
            name: reason
            for name, reason in expected.items()
            if name.split("/")[0] in arguments.scenario
        }
    unexpected, stale = judge(scenarios, expected)
    for name in unexpected:
        print(f"unexpected failure: {name}")
    for name in stale:
        print(f"expected to fail, but passes: {name} ({expected[name]})")
    passed = sum(scenario.passed for scenario in scenarios)
    failed = sum(scenario.failures for scenario in scenarios)
    print(f"{len(unexpected)} unexpected, {len(stale)} expected failures that pass now")
    print(f"{passed} passed, {failed} failed")
    return 1 if unexpected or stale or not scenarios else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True, help="the server's MCP endpoint")
    parser.add_argument("--node", required=True, type=pathlib.Path, help="a node of 22 or later")
    parser.add_argument(
        "--suite", required=True, type=pathlib.Path, help="the package, or where it was installed"
    )
    parser.add_argument("--requirements", required=True, choices=["2025-11-25", "2026-07-28"])
    parser.add_argument("--expected", type=pathlib.Path, help="TOML file of expected failures")
    parser.add_argument("--scenario", action="append", help="run this scenario only")
    parser.add_argument("--output", type=pathlib.Path, help="keep the suite's results here")
    parser.add_argument("--time-limit", type=float, default=900.0, help="seconds for it all")
    return parser.parse_args()


def find_package(suite: pathlib.Path) -> pathlib.Path:
    """The suite's own directory, given that or a directory it was installed under."""
    name = pathlib.Path("@modelcontextprotocol/conformance")
    for package in (suite, suite / name, suite / "node_modules" / name):
        if (package / "dist" / "index.js").is_file():
            return package
    sys.exit(f"{suite}: no conformance suite here")


def scenarios_of(requirements: pathlib.Path) -> tuple[list[str], list[str]]:
    """The server scenarios that are required, and those that only run along.

    The file is YAML of a simple kind: lists under top-level keys, and mappings in `not_scored`.
    """
    required, unscored, section, scenario = [], [], "", ""
    for line in requirements.read_text().splitlines():
        if line.startswith("#"):
            continue
        if match := re.match(r"^(\w+):", line):
            section = match[1]
        elif section == "server" and (match := re.match(r"^\s+- (\S+)", line)):
            required.append(match[1])
        elif section == "not_scored" and (match := re.match(r"^\s+- scenario: (\S+)", line)):
            scenario = match[1]
        elif section == "not_scored" and re.match(r"^\s+leg: server\b", line):
            unscored.append(scenario)
    return required, unscored


def read_expected(path: pathlib.Path | None, requirements: str) -> dict[str, str]:
    """Names of the failures to expect, each with its reason."""
    if path is None:
        return {}
    expected = tomllib.loads(path.read_text()).get(requirements, {})
    for name, reason in expected.items():
        if not isinstance(reason, str) or not reason.strip():
            sys.exit(f"{path}: {name} has no reason")
    return expected


def run_suite(arguments: argparse.Namespace, package: pathlib.Path, output: pathlib.Path) -> None:
    command = [arguments.node, package / "dist" / "index.js", "server", "--url", arguments.url]
    command += ["--output-dir", output]
    runs = [command + ["--requirements", arguments.requirements]]
    if arguments.scenario:
        version = ["--spec-version", arguments.requirements, "--force"]
        runs = [command + ["--scenario", name] + version for name in arguments.scenario]
    with (output / "suite.log").open("w") as log:
        for run in runs:
            # Its exit code says only whether something failed, which the checks say better.
            try:
                limit = arguments.time_limit
                subprocess.run(run, stdout=log, stderr=log, timeout=limit, check=False)
            except subprocess.TimeoutExpired:
                print(f"the suite was stopped after {limit:g} s")


def read_checks(output: pathlib.Path) -> dict[str, list[dict]]:
    """The checks of each scenario that left some, the newest where one ran twice."""
    checks = {}
    for path in sorted(output.glob("server-*/checks.json")):
        if match := RESULT_DIRECTORY.match(path.parent.name):
            checks[match["scenario"]] = json.loads(path.read_text())
    return checks


def tally(name: str, is_required: bool, checks: list[dict] | None) -> Scenario:
    scenario = Scenario(name, is_required)
    if not checks:
        scenario.failed[NO_RESULT] = ["the scenario left no checks"]
        return scenario
    for check in checks:
        match check["status"]:
            case "SUCCESS":
                scenario.passed += 1
            case "WARNING":
                scenario.warned += 1
            case "FAILURE":
                message = check.get("errorMessage") or check.get("description", "")
                scenario.failed.setdefault(check["id"], []).append(message)
    return scenario


def judge(
    scenarios: list[Scenario], expected: dict[str, str]
) -> tuple[list[str], list[str]]:
    """The failures nobody expected, and the expectations that were not met."""
    unexpected, met = [], set()
    for scenario in scenarios:
        for check in scenario.failed:
            names = {scenario.name, f"{scenario.name}/{check}"} & expected.keys()
            met |= names
            if not names:
                unexpected.append(f"{scenario.name}/{check}")
    return unexpected, [name for name in expected if name not in met]


def print_table(scenarios: list[Scenario]) -> None:
    width = max((len(scenario.name) for scenario in scenarios), default=0)
    for scenario in scenarios:
        kind = "required" if scenario.is_required else "unscored"
        counts = f"{scenario.passed:3} passed {scenario.failures:3} failed"
        warned = f" {scenario.warned:3} warnings" if scenario.warned else ""
        print(f"{scenario.name:{width}}  {kind}  {counts}{warned}")
        for check, messages in scenario.failed.items():
            for message in messages:
                print(f"    {check}: {' '.join(message.split())[:160]}")


if __name__ == "__main__":
    sys.exit(main())
