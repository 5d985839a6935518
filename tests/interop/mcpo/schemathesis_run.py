#!/usr/bin/env python3
"""schemathesis makes requests of the demo server's OpenAPI document, fitting and unfitting ones.

    tests/interop/mcpo/schemathesis_run.py --pontoon target/debug/pontoon

Every answer has to be as the document says, its status too; what fits has to be accepted, what does not fit has to be refused, and no answer may
be one of 500 and above. Answers that are declared in `schemathesis_hooks.py` are not held against it, each with its reason; one that does not
come any more fails. The requests are the same in every run. Ends with `N passed, N failed`.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bridges  # noqa: E402

# The last three are its own of the same kind, but for what is declared.
CHECKS = [
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "positive_data_acceptance",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "no_server_error",
    "documented_status",
    "refused_if_unfitting",
]
# This one fails whatever it is asked, so nothing that fits is accepted.
NEVER_ACCEPTED = "/ask_name"
DECLARED = ["cannot_ask", "has_unknown_member", "is_converted", "is_no_text"]
EXAMPLES = 40
SECONDS = 150


def run(url: str, mode: str, options: list[str], folder: pathlib.Path) -> tuple[int, str]:
    command = [bridges.CACHE / "schemathesis/bin/schemathesis", "run", f"{url}/openapi.json", "--url", url]
    command += ["--mode", mode, "--phases", "examples,coverage,fuzzing", "--continue-on-failure"]
    command += ["--max-examples", str(EXAMPLES), "--seed", "1", "--generation-deterministic"]
    command += ["--request-timeout", "20", "--workers", "1", "--no-color", "--warnings", "off"]
    command += options
    environment = bridges.os.environ | {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HERE)}
    environment["PONTOON_EXCEPTIONS"] = str(folder / "exceptions")
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
            others = [check for check in CHECKS if check != "positive_data_acceptance"]
            all_but = ["--exclude-path", NEVER_ACCEPTED, "--checks", ",".join(CHECKS)]
            never = ["--include-path", NEVER_ACCEPTED, "--checks", ",".join(others)]
            runs = [("/mcpo/demo", "positive", all_but), ("/mcpo/demo", "positive", never), ("/mcpo/demo", "negative", all_but)]
            for path, mode, wanted in [*runs, ("/demo", "positive", all_but)]:
                status, said = run(f"http://{replica.listen}{path}", mode, wanted, folder)
                print("\n".join(f"    {line}" for line in said.strip().splitlines()[-60 if status else -12 :]))
                print(f"{'FAIL' if status else 'ok  '} {path}: {mode} requests made of its document", flush=True)
                passed, failed = passed + (not status), failed + bool(status)
        seen = set((folder / "exceptions").read_text().split())
        for name in DECLARED:
            is_needed = name in seen
            print(f"{'ok  ' if is_needed else 'FAIL'} {name}: {'declared, and seen' if is_needed else 'is declared and does not come any more'}")
            passed, failed = passed + is_needed, failed + (not is_needed)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
