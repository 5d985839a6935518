#!/bin/sh
# Stands in for a C compiler where code is checked for a system that this machine cannot compile C for: nothing is
# linked then, so an empty file in place of each object is enough.
while [ $# -gt 1 ]; do
    if [ "$1" = -o ]; then : >"$2"; fi
    shift
done
