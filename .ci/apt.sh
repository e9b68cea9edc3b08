# shellcheck shell=bash
# Source this file, do not run it. It installs Debian packages if that needs no interaction.

# Deadline for fetching packages, in bash's SECONDS: a slow mirror must not hold up a build for ever.
APT_FETCH_UNTIL=$((SECONDS + ${APT_FETCH_S:-600}))
# The exit status of this shell's `apt-get update`, or empty before the first try.
APT_UPDATED=

# apt_possible: succeeds if apt-get exists, and if this user is root or sudo asks for no password.
apt_possible() {
    command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }
}

# as_root COMMAND…: runs the command as root.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

# apt_update: returns 0 if the lists of packages are up to date. It tries to update them only once.
apt_update() {
    if [ -z "$APT_UPDATED" ]; then
        APT_UPDATED=0
        _apt $((APT_FETCH_UNTIL - SECONDS)) update || APT_UPDATED=$?
    fi
    return "$APT_UPDATED"
}

# apt_install PACKAGE…: returns 0 if all packages are installed now. It reports on standard error what it installs, and
# why it failed. It fetches all packages before it installs them. Otherwise a slow mirror could use up the time limit of
# the installation. That would kill dpkg halfway, and the system could not install anything more.
apt_install() {
    apt_possible || return 1
    echo "installing with apt: $*" >&2
    _apt_fetch "$@" 2>/dev/null || { apt_update && _apt_fetch "$@"; } || return 1
    _apt 900 install --no-install-recommends "$@"
}

_apt_fetch() {
    _apt $((APT_FETCH_UNTIL - SECONDS)) install --download-only --no-install-recommends "$@"
}

# _apt SECONDS ARGUMENT…: runs apt-get, and ends it after that time. If another apt-get is already running, the new one
# first waits until the other one has ended.
_apt() {
    local seconds=$1 said status=0
    shift
    if [ "$seconds" -le 0 ]; then
        echo "apt-get $1: no time is left for fetching" >&2
        return 1
    fi
    said=$(as_root env DEBIAN_FRONTEND=noninteractive timeout --kill-after=10 "$seconds" \
        apt-get -y -qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=1 "$@" </dev/null 2>&1) || status=$?
    case $status in
        0) ;;
        124 | 137) echo "apt-get $1 was ended after $seconds s" >&2 ;;
        *) printf 'apt-get %s failed:\n%s\n' "$1" "$(tail -n 20 <<<"$said")" >&2 ;;
    esac
    return "$status"
}

# apt_without_starting COMMAND…: runs the command so that the packages it installs do not start their services. Debian
# checks the script policy-rc.d before it starts a service. While the command runs, this script exists and exits with
# 101 (forbidden). If the script exists already, as in most container images, it stays unchanged.
apt_without_starting() {
    local policy=/usr/sbin/policy-rc.d status=0
    if [ -e "$policy" ]; then
        "$@"
        return
    fi
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null && as_root chmod 755 "$policy" && "$@" || status=$?
    as_root rm -f "$policy"
    trap - EXIT
    return "$status"
}
