#!/usr/bin/env python3
"""Writes the PyPI wheel `pontoon-mcp`, which carries the static program of one machine.

    scripts/dist/wheel.py --machine x86_64 --version V --description D --license L --program FILE --licences DIR OUT

For scripts/dist.sh. A wheel is an archive with three small files beside what it installs, so no build tool is asked,
which would compile the program once more. Standard library only.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import time
import zipfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

# A static program needs no C library at all, so it fits the oldest of either kind that installers know.
TAGS = ["manylinux_2_17_{machine}", "manylinux2014_{machine}", "musllinux_1_1_{machine}"]

# `uvx pontoon-mcp` looks for a program called as the package is.
SAME_NAME = b"""#!/bin/sh
exec "$(dirname "$0")/pontoon" "$@"
"""


def metadata(options: argparse.Namespace, licences: list[str]) -> str:
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", "pontoon-mcp"),
        ("Version", options.version),
        ("Summary", options.description),
        ("License-Expression", options.license),
        *(("License-File", name) for name in licences),
        ("Keywords", "mcp,model-context-protocol,bridge,proxy,openapi"),
        ("Classifier", "Environment :: Console"),
        ("Classifier", "Operating System :: POSIX :: Linux"),
        ("Classifier", "Programming Language :: Rust"),
        ("Requires-Python", ">=3.8"),
        ("Description-Content-Type", "text/markdown"),
    ]
    readme = (REPOSITORY / "deploy" / "packages" / "README.md").read_text()
    return "".join(f"{name}: {value}\n" for name, value in fields) + "\n" + readme


class Wheel:
    """An archive that keeps the list of its files."""

    def __init__(self, file: pathlib.Path) -> None:
        self.archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.when = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")))[:6]
        self.records: list[str] = []

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(content)}")
        self.write(name, content, mode)

    def write(self, name: str, content: bytes, mode: int) -> None:
        entry = zipfile.ZipInfo(name, self.when)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.archive.writestr(entry, content)

    def finish(self, record: str) -> None:
        self.write(record, "".join(f"{line}\n" for line in [*self.records, f"{record},,"]).encode(), 0o644)
        self.archive.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["machine", "version", "description", "license"]:
        parser.add_argument(f"--{name}", required=True)
    for name in ["program", "licences"]:
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()

    name = f"pontoon_mcp-{options.version}"
    tags = [tag.format(machine=options.machine) for tag in TAGS]
    licences = {file.name: file.read_bytes() for file in sorted(options.licences.iterdir())}
    wheel = Wheel(options.out / f"{name}-py3-none-{'.'.join(tags)}.whl")
    wheel.add(f"{name}.data/scripts/pontoon", options.program.read_bytes(), 0o755)
    wheel.add(f"{name}.data/scripts/pontoon-mcp", SAME_NAME, 0o755)
    for file, content in licences.items():
        wheel.add(f"{name}.dist-info/licenses/{file}", content)
    wheel.add(f"{name}.dist-info/METADATA", metadata(options, list(licences)).encode())
    about = ["Wheel-Version: 1.0", "Generator: pontoon", "Root-Is-Purelib: false", *(f"Tag: py3-none-{tag}" for tag in tags)]
    wheel.add(f"{name}.dist-info/WHEEL", "".join(f"{line}\n" for line in about).encode())
    wheel.finish(f"{name}.dist-info/RECORD")


if __name__ == "__main__":
    main()
