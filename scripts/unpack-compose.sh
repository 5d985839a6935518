#!/usr/bin/env bash
# Unpacks docker compose 2 into a folder, from the package of Debian 13: nothing is installed, and no docker is needed to
# check a file with it.
#
#   scripts/unpack-compose.sh FOLDER      FOLDER/usr/libexec/docker/cli-plugins/docker-compose is the program
#
# For a Debian whose sources are in /etc/apt/sources.list.d/debian.sources.
set -euo pipefail

folder=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/sources" "$work/cache/archives/partial"
# The same server, another release; the paragraph with updates of security is left out.
awk 'BEGIN { RS = ""; ORS = "\n\n" } !/security/' /etc/apt/sources.list.d/debian.sources |
    sed -E 's/^Suites:.*/Suites: trixie/' >"$work/sources/debian.sources"
apt=(-qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/sources" -o Dir::State::lists="$work/lists"
    -o Dir::Cache="$work/cache" -o APT::Sandbox::User="$(id -un)")
apt-get "${apt[@]}" update
(cd "$work" && apt-get "${apt[@]}" download docker-compose)
rm -rf "$folder"
dpkg --extract "$work"/docker-compose_*.deb "$folder"
