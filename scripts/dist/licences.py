#!/usr/bin/env python3
"""Prints the licences of everything that is linked into the program, for a target: whoever passes it on passes them on.

    scripts/dist/licences.py x86_64-unknown-linux-gnu

For scripts/dist.sh. They are read from the sources that cargo has built from. Standard library only.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
IS_LICENCE = re.compile(r"(?i)(un)?(licen[cs]e|copying|copyright|notice)")


def linked(metadata: dict) -> list[dict]:
    """The packages that are parts of the program: not what only builds or tests it."""
    packages = {package["id"]: package for package in metadata["packages"]}
    edges = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    found, next_ones = set(), [id for id, package in packages.items() if package["name"] == "pontoon"]
    while next_ones:
        id = next_ones.pop()
        if id not in found:
            found.add(id)
            next_ones += [edge["pkg"] for edge in edges[id] if any(kind["kind"] is None for kind in edge["dep_kinds"])]
    foreign = [packages[id] for id in found if packages[id]["source"]]
    return sorted(foreign, key=lambda package: (package["name"], package["version"]))


def texts(package: dict) -> list[str]:
    folder = pathlib.Path(package["manifest_path"]).parent
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and IS_LICENCE.match(file.name)]
    return [file.read_text(errors="replace").strip() for file in files]


def main() -> None:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", sys.argv[1]]
    metadata = json.loads(subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE).stdout)
    packages = linked(metadata)
    # Many have the very same text, which is then printed once.
    owners = collections.defaultdict(list)
    print("Pontoon is linked with these packages, under the licences named; the texts that they bring follow.\n")
    for package in packages:
        print(f"  {package['name']} {package['version']}: {package['license'] or package['license_file']}")
        for text in texts(package):
            owners[text].append(package["name"])
    swagger = REPOSITORY / "crates" / "pontoon" / "src" / "front" / "rest" / "swagger-ui"
    for file in sorted(swagger.glob("*LICENSE*")):
        owners[file.read_text().strip()].append("swagger-ui (Apache-2.0)")
    for text, names in owners.items():
        print(f"\n{'=' * 80}\n{', '.join(dict.fromkeys(names))}\n{'=' * 80}\n\n{text}")


if __name__ == "__main__":
    main()
