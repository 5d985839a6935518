#!/usr/bin/env python3
"""A new user's first minute, from `pip install` to a file downloaded by its link, as docs/first-minute.md shows it.

    tests/install/first_minute.py --dist dist            compares what is typed and said with that page
    tests/install/first_minute.py --dist dist --write    writes the page

It must be over within a minute. The wheel is found in the folder that scripts/dist.sh filled. Needs curl, and
`scripts/setup-tests.sh py-mcp2` for the client with an SDK. Ends with `N passed, N failed`.
"""

import argparse
import difflib
import pathlib
import re
import sys
import tempfile
import time

from terminal import CLIENT, PYTHON_WITH_SDK, Typed, environment, terminal, use_demo

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "first-minute.md"
BUDGET_SECONDS = 60

# What differs from run to run, and what stands for it when two runs are compared.
VARYING = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "JOB"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"\d+\.\d s\b", "SECONDS"),
]

TEXT = """\
<!-- Written by tests/install/first_minute.py; renew it with its option `--write`. -->
# The first minute

This was recorded by a test that `./scripts/test.sh install` makes again each time: on a machine with Python and curl, and the wheel that
`scripts/dist.sh` made in a folder that `PIP_FIND_LINKS` names. From `pip install` to the last line it took {whole} s, of which `pip install` took {install} s.
The test fails when it takes a minute.

Install it, in an environment of its own. The wheel is one program and needs no other package:

```console
{installing}
```

Serve the demo, in this terminal:

```console
$ pontoon serve
{first}
```

It goes on, with what a client has to know. In another terminal, call a tool, and one that makes a file. The answer has a link to the file:

```console
{shell}
```

The same from an SDK (`pip install mcp`), with `client.py`:

```python
{client}```

```console
{sdk}
```

Ctrl-C in the first terminal ends it, and nothing is left. It goes on in [quick-start.md](quick-start.md), with
the page of a server and with servers of your own; other ways to install are in [install.md](install.md).
"""


def shown(typed: list[Typed]) -> str:
    return "\n".join(f"$ {step.line}" + (f"\n{step.said}" if step.said else "") for step in typed)


def record(dist: pathlib.Path, folder: pathlib.Path) -> tuple[str, float]:
    """The page, and how long it took from `pip install` to the end."""
    settings = environment(folder, PYTHON_WITH_SDK.joinpath("python").resolve().parent)
    settings |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(dist), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with terminal(folder, settings) as shell:
        installing = [shell.type("python3 -m venv .venv && source .venv/bin/activate")]
        started = time.monotonic()
        installing.append(shell.type("pip install --quiet pontoon-mcp"))
        install = time.monotonic() - started
        installing.append(shell.type("pontoon --version"))
        first, typed = use_demo(folder, shell, environment(folder, folder / ".venv" / "bin"))
        whole = time.monotonic() - started
    at = next(number for number, step in enumerate(typed) if step.line.endswith("client.py"))
    parts = {"installing": shown(installing), "first": first.rstrip(), "shell": shown(typed[:at]), "sdk": shown(typed[at:])}
    return TEXT.format(whole=f"{whole:.1f}", install=f"{install:.1f}", client=CLIENT, **parts), whole


def steady(page: str) -> list[str]:
    for pattern, word in VARYING:
        page = re.sub(pattern, word, page)
    return page.splitlines(keepends=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pontoon-") as folder:
        page, whole = record(options.dist, pathlib.Path(folder))
    if options.write:
        PAGE.write_text(page)
    difference = list(difflib.unified_diff(steady(PAGE.read_text()), steady(page), str(PAGE), "what was typed and said now"))
    checks = {
        f"the first minute took {whole:.1f} s": whole < BUDGET_SECONDS,
        "docs/first-minute.md shows it (`--write` renews it)": not difference,
    }
    sys.stdout.writelines(difference)
    for name, is_well in checks.items():
        print(f"{'ok  ' if is_well else 'FAIL'} {name}")
    failed = sum(not is_well for is_well in checks.values())
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
