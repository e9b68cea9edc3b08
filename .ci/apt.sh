# shellcheck shell=bash
# Sourced, not run: installing Debian packages where it can be done without asking anybody.

# apt_possible: root (or sudo that asks no password) and apt-get are there.
apt_possible() {
    command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }
}

# apt_install PACKAGE…: 0 if all are installed now. Its talk goes to standard error; it may take ten minutes at most,
# for a mirror that trickles must not hold a build for ever.
apt_install() {
    apt_possible || return 1
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    echo "installing with apt: $*" >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive timeout 600 bash -c '
        apt-get install -y -qq --no-install-recommends "$@" && exit
        apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"' apt "$@" >&2
}
