# shellcheck shell=bash
# Sourced, not run: installing Debian packages where it can be done without asking anybody.

# apt_possible: root (or sudo that asks no password) and apt-get are there.
apt_possible() {
    command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }
}

# as_root COMMAND…
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

# apt_install PACKAGE…: 0 if all are installed now. Its talk goes to standard error; it may take ten minutes at most,
# for a mirror that trickles must not hold a build for ever.
apt_install() {
    apt_possible || return 1
    echo "installing with apt: $*" >&2
    as_root env DEBIAN_FRONTEND=noninteractive timeout 600 bash -c '
        apt-get install -y -qq --no-install-recommends "$@" && exit
        apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"' apt "$@" >&2
}

# apt_install_server PACKAGE: likewise, and the package does not start what it brings: Debian's own switch for that
# (policy-rc.d, 101: forbidden) is there meanwhile, unless somebody has set it already, as most container images have.
apt_install_server() (
    apt_possible || exit 1
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null && as_root chmod 755 "$policy" || exit 1
    fi
    apt_install "$1"
)
