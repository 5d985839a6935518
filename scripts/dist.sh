#!/usr/bin/env bash
# Builds what a release has, into dist/: static programs for Linux in archives, Debian packages, PyPI wheels and npm
# packages, with licences, manual pages and shell completions, and SHA256SUMS of it all. The version is Cargo.toml's.
#
#   scripts/dist.sh                                    everything, as .github/workflows/release.yml runs it
#   scripts/dist.sh --profile swift --targets x86_64   a quicker build for one of x86_64 and aarch64
#   scripts/dist.sh OUT                                into another folder
#
# Besides Rust and a C compiler it needs python3 and dpkg-deb; for the machine that this one is not, also a C compiler
# (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross) and a program that runs its programs (Debian: qemu-user-static).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
profile=release
targets="x86_64 aarch64"
out=dist
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
cargo_home=${CARGO_HOME:-$HOME/.cargo}

of_cargo_toml() { sed -nE "/^\[$2\]/,/^\[x/s/^$1 = \"(.*)\"/\1/p" "$3" | head -n 1; }
version=$(of_cargo_toml version workspace.package Cargo.toml)
license=$(of_cargo_toml license workspace.package Cargo.toml)
description=$(of_cargo_toml description package crates/pontoon/Cargo.toml)

main() {
    local machine
    while [ $# -gt 0 ]; do
        case $1 in
            --profile) profile=$2; shift ;;
            --targets) targets=$2; shift ;;
            -*) echo "unknown option $1; see the head of scripts/dist.sh" >&2; return 2 ;;
            *) out=$1 ;;
        esac
        shift
    done
    # The same sources give the same bytes, so every time in a package is that of the commit.
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    export SOURCE_DATE_EPOCH
    mkdir -p "$out"
    out=$(cd "$out" && pwd)
    rm -f "$out"/pontoon[-_]* "$out/SHA256SUMS"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT

    for machine in $targets; do
        build "$machine"
    done
    # Of one program, of this machine if there is one: they are the same for all.
    for machine in $(uname -m) $targets; do
        [ -x "$work/$machine/pontoon" ] && break
    done
    write_shared "$machine"
    for machine in $targets; do
        write_archive "$machine"
        write_debian "$machine"
        write_npm "$machine"
        python3 scripts/dist/wheel.py --machine "$machine" --version "$version" --description "$description" \
            --license "$license" --program "$work/$machine/pontoon" --licences "$work/licences" "$out"
    done
    write_npm_main
    (cd "$out" && sha256sum pontoon[-_]* >SHA256SUMS)
    ls -l "$out"
}

triple() { echo "$1-unknown-linux-gnu"; }

# A static program, with glibc and at a fixed address, as deploy/Dockerfile says why.
build() {
    local machine=$1 triple folder flags said
    triple=$(triple "$machine")
    case $machine in x86_64 | aarch64) ;; *) echo "no release is made for $machine" >&2; return 2 ;; esac
    if command -v rustup >/dev/null && ! rustup target list --installed | grep -qx "$triple"; then
        rustup target add "$triple"
    fi
    # The last two keep this machine's folders out of the program, whose panics name source files.
    flags=(-Ctarget-feature=+crt-static -Crelocation-model=static
        "--remap-path-prefix=$cargo_home=/cargo" "--remap-path-prefix=$PWD=/pontoon")
    if [ "$machine" != "$(uname -m)" ]; then
        export "CC_${machine}_unknown_linux_gnu=$machine-linux-gnu-gcc"
        export "CARGO_TARGET_${machine^^}_UNKNOWN_LINUX_GNU_LINKER=$machine-linux-gnu-gcc"
    fi
    # Encoded flags win over all others that a machine may have set, and may have spaces.
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}") \
        cargo build --profile "$profile" --locked -p pontoon --bin pontoon --target "$triple"
    folder=$profile
    [ "$profile" != dev ] || folder=debug
    install -D -m 0755 "$target_dir/$triple/$folder/pontoon" "$work/$machine/pontoon"
    if readelf --program-headers --wide "$work/$machine/pontoon" | grep -q INTERP; then
        echo "the program for $machine is not static" >&2
        return 1
    fi
    said=$(run "$machine" --version)
    [ "$said" = "pontoon $version" ] || { echo "the program for $machine says '$said' of itself" >&2; return 1; }
}

# The program of a machine, through qemu if this one is another.
run() {
    local machine=$1
    shift
    if [ "$machine" = "$(uname -m)" ]; then
        "$work/$machine/pontoon" "$@"
    else
        "$(command -v "qemu-$machine-static" || command -v "qemu-$machine" || echo "qemu-$machine-static")" \
            "$work/$machine/pontoon" "$@"
    fi
}

# What all packages have besides the program: licences, manual pages, completions, words.
write_shared() {
    local machine=$1
    mkdir -p "$work/licences" "$work/completions"
    cp LICENSE-MIT LICENSE-APACHE "$work/licences/"
    python3 scripts/dist/licences.py "$(triple "$machine")" >"$work/licences/LICENSES-OF-PARTS.txt"
    run "$machine" man "$work/man" --date "$(date --utc --date="@$SOURCE_DATE_EPOCH" +%F)" >/dev/null
    run "$machine" completions bash >"$work/completions/pontoon.bash"
    run "$machine" completions zsh >"$work/completions/_pontoon"
    run "$machine" completions fish >"$work/completions/pontoon.fish"
    run "$machine" completions elvish >"$work/completions/pontoon.elv"
    run "$machine" completions powershell >"$work/completions/pontoon.ps1"
}

# An archive whose bytes depend on what is in it alone.
pack() {
    local archive=$1
    shift
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar -cf - "$@" |
        gzip -9n >"$archive"
}

# The names are those that `cargo binstall` looks for, see crates/pontoon/Cargo.toml.
write_archive() {
    local machine=$1 name folder
    name=pontoon-$version-$(triple "$machine")
    folder=$work/archive/$name
    mkdir -p "$folder"
    cp -r "$work/$machine/pontoon" "$work/licences/." "$work/man" "$work/completions" README.md CHANGELOG.md "$folder/"
    cp crates/pontoon/mcp-servers.example.json "$folder/"
    pack "$out/$name.tar.gz" -C "$work/archive" "$name"
}

# Fills in a file of deploy/packages.
fill_in() {
    sed -e "s|@VERSION@|$version|g" -e "s|@DESCRIPTION@|$description|g" -e "s|@LICENSE@|$license|g" \
        -e "s|@ARCHITECTURE@|${architecture:-}|g" -e "s|@SIZE@|${size:-}|g" -e "s|@CPU@|${cpu:-}|g" "$1"
}

write_debian() {
    local machine=$1 root=$work/$1/debian architecture size page
    case $machine in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; esac
    install -D -m 0755 "$work/$machine/pontoon" "$root/usr/bin/pontoon"
    for page in "$work"/man/*.1; do
        install -d "$root/usr/share/man/man1"
        gzip -9nc "$page" >"$root/usr/share/man/man1/${page##*/}.gz"
    done
    install -D -m 0644 "$work/completions/pontoon.bash" "$root/usr/share/bash-completion/completions/pontoon"
    install -D -m 0644 "$work/completions/_pontoon" "$root/usr/share/zsh/vendor-completions/_pontoon"
    install -D -m 0644 "$work/completions/pontoon.fish" "$root/usr/share/fish/vendor_completions.d/pontoon.fish"
    install -D -m 0644 README.md "$root/usr/share/doc/pontoon/README.md"
    install -m 0644 "$work"/licences/* CHANGELOG.md deploy/systemd/pontoon.service \
        crates/pontoon/mcp-servers.example.json "$root/usr/share/doc/pontoon/"
    cat "$work"/licences/* >"$root/usr/share/doc/pontoon/copyright"
    # As an example: started by itself, a bridge would serve what was not chosen.
    sed -i 's|/usr/local/bin/pontoon|/usr/bin/pontoon|' "$root/usr/share/doc/pontoon/pontoon.service"
    size=$(du -sk --apparent-size "$root" | cut -f1)
    install -d "$root/DEBIAN"
    fill_in deploy/packages/debian/control >"$root/DEBIAN/control"
    dpkg-deb --build --root-owner-group -Zxz "$root" "$out/pontoon_${version}_$architecture.deb" >/dev/null
}

write_npm() {
    local machine=$1 cpu folder=$work/$1/npm/package
    case $machine in x86_64) cpu=x64 ;; aarch64) cpu=arm64 ;; esac
    install -D -m 0755 "$work/$machine/pontoon" "$folder/bin/pontoon"
    cp "$work"/licences/* deploy/packages/README.md "$folder/"
    fill_in deploy/packages/npm/linux/package.json >"$folder/package.json"
    pack "$out/pontoon-mcp-linux-$cpu-$version.tgz" -C "$work/$machine/npm" package
}

write_npm_main() {
    local folder=$work/npm/package
    install -D -m 0755 deploy/packages/npm/pontoon.sh "$folder/pontoon.sh"
    cp LICENSE-MIT LICENSE-APACHE deploy/packages/README.md "$folder/"
    fill_in deploy/packages/npm/package.json >"$folder/package.json"
    pack "$out/pontoon-mcp-$version.tgz" -C "$work/npm" package
}

main "$@"
