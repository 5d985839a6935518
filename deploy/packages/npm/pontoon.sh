#!/bin/sh
# Becomes the program of this machine's package, as node would find it. There is no node in between: a process that
# waits would have to pass on each signal, and SIGKILL cannot be passed on at all.
case $(uname -s)-$(uname -m) in
    Linux-x86_64) name=pontoon-mcp-linux-x64 ;;
    Linux-aarch64 | Linux-arm64) name=pontoon-mcp-linux-arm64 ;;
    *) echo "pontoon: there is no npm package for $(uname -s) on $(uname -m); cargo install can build it" >&2; exit 1 ;;
esac
# npm makes a link to this file, pnpm a script that calls it.
folder=$(dirname "$(readlink -f "$0")")
while :; do
    if [ -x "$folder/node_modules/$name/bin/pontoon" ]; then
        exec "$folder/node_modules/$name/bin/pontoon" "$@"
    fi
    [ "$folder" != / ] || break
    folder=$(dirname "$folder")
done
echo "pontoon: the package $name is not installed; install pontoon-mcp again, without --omit=optional" >&2
exit 1
