#!/usr/bin/env bash
# Prints the command of a Python that can make the project's environment: 3.11 or newer, with the modules `venv` and
# `ensurepip` (Debian keeps those in a separate package). It tries PYTHON=… first. If it finds no such Python, it
# installs Debian's with apt as root; if that is not possible, it says what to install, and fails.
set -u

# 3.14 comes last, because every pinned package has wheels for 3.11 to 3.13; for 3.14, pip may have to build some
# packages.
candidates=(${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14)

fits() {
    # A version manager may put a stub on PATH that does not work. Only a run shows that.
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in "${candidates[@]}"; do
        if fits "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

find_python && exit 0
# shellcheck source=.ci/apt.sh
. "$(dirname "$0")/apt.sh"
apt_install python3 python3-venv && find_python && exit 0
echo "No Python 3.11 or newer with venv and ensurepip. Install one (Debian, Ubuntu: apt install python3 python3-venv)," \
    "or name it: make setup PYTHON=/path/to/python3" >&2
exit 1
