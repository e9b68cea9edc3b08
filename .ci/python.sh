#!/usr/bin/env bash
# Prints the command of a Python that can make the project's environment: 3.11 or newer, with the modules `venv` and
# `ensurepip` (Debian keeps those in a package of their own). PYTHON=… is tried first. If there is none, the script
# installs Debian's with apt as root; if that is not possible, it says what to install and fails.
set -u

# They are in this order because every pinned package has wheels for 3.11 to 3.13; a newer one may have to build some.
candidates=(${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14)

fits() {
    # A version manager's stub exists on PATH without working: only running it tells.
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
