#!/usr/bin/env python3
"""schemathesis makes requests of the demo server's OpenAPI document, fitting and unfitting ones.

    tests/interop/mcpo/schemathesis_run.py --pontoon target/debug/pontoon

Every answer has to be as the document says; what fits has to be accepted, and no answer to it may be one of 500 and above. What does not fit
may be: mcpo passes values outside of a range on, and so does the bridge, and a tool that refuses them answers with 500. The requests are the
same in every run. Ends with `N passed, N failed`.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bridges  # noqa: E402

# Not the statuses: mcpo's documents name 200 and 422 and leave out what else there is, and so do ours.
CHECKS = [
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
]
FITTING = ["not_a_server_error", "positive_data_acceptance"]
EXAMPLES = 40
SECONDS = 150


def run(url: str, mode: str, folder: pathlib.Path) -> tuple[int, str]:
    checks = CHECKS + (FITTING if mode == "positive" else [])
    command = [bridges.CACHE / "schemathesis/bin/schemathesis", "run", f"{url}/openapi.json", "--url", url]
    command += ["--mode", mode, "--checks", ",".join(checks), "--phases", "examples,coverage,fuzzing", "--continue-on-failure"]
    # It asks its user, and nobody is there to be asked: a tool's own failure has the status 500, as mcpo has it.
    command += ["--exclude-path", "/ask_name"]
    command += ["--max-examples", str(EXAMPLES), "--seed", "1", "--generation-deterministic"]
    command += ["--request-timeout", "20", "--workers", "1", "--no-color", "--warnings", "off"]
    environment = bridges.os.environ | {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HERE)}
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as expired:
        return 1, f"no end after {SECONDS} s:\n{(expired.stdout or b'').decode()[-3000:]}"
    return ended.returncode, ended.stdout + ended.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pontoon", required=True, type=lambda path: pathlib.Path(path).resolve(strict=True))
    options = parser.parse_args()
    subprocess.run([bridges.REPOSITORY / "scripts" / "setup-tests.sh", "schemathesis"], check=True)
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="pontoon-schemathesis-") as folder:
        folder = pathlib.Path(folder)
        servers = {"demo": {"command": str(options.pontoon), "args": ["demo"], "mode": "shared"}}
        with bridges.pontoon(options.pontoon, folder / "bridge", servers) as replica:
            for path, mode in [("/mcpo/demo", "positive"), ("/mcpo/demo", "negative"), ("/demo", "positive")]:
                status, said = run(f"http://{replica.listen}{path}", mode, folder)
                print("\n".join(f"    {line}" for line in said.strip().splitlines()[-60 if status else -12 :]))
                print(f"{'FAIL' if status else 'ok  '} {path}: {mode} requests made of its document", flush=True)
                passed, failed = passed + (not status), failed + bool(status)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
