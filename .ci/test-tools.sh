#!/usr/bin/env bash
# Installs what some tests need in addition to the pinned packages: the missing programs of tests/tools.txt, Kafka's
# jars with KAFKA=1, Event Ruler's jars with RULER=1, and two programs that it builds with Go (Centrifuge with
# CENTRIFUGE=1, and the current NATS with NATS=1). It needs root, or sudo that asks for no password; otherwise it says
# which command to run. It starts none of the servers that it installs, and the machine does not start them at boot. It
# exits with 0 if everything that this Debian release has is installed. Because a mirror can be slow, it gives up
# fetching packages after ten minutes. It also gives up fetching Kafka's jars, and each build, after ten minutes.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=.ci/apt.sh
. .ci/apt.sh

# Debian puts servers into folders that are not on a user's PATH. The official archive of Go does not add itself to
# PATH.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/go/bin

# there PROGRAMS: succeeds if one of these programs, separated by commas, can be run.
there() {
    local program
    for program in ${1//,/ }; do
        command -v "$program" >/dev/null && return
    done
    return 1
}

# available PACKAGE[>=VERSION]: succeeds if this Debian release has the package, in that version or a newer one.
available() {
    local version
    version=$(LC_ALL=C apt-cache policy "${1%>=*}" | awk '$1 == "Candidate:" && $2 != "(none)" { print $2 }')
    case $version,$1 in
        ,*) return 1 ;;
        *'>='*) dpkg --compare-versions "$version" ge "${1#*>=}" ;;
    esac
}

# enabled: prints the services that start at boot.
enabled() {
    find /etc/systemd/system -path '*.wants/*' '(' -name '*.service' -o -name '*.socket' ')' -printf '%f\n' 2>/dev/null | sort -u
}

# install_each PACKAGE…: installs the packages one by one. If a slow mirror delivers only some packages, at least these
# packages get installed.
install_each() {
    local before package unit
    before=$(enabled)
    for package in "$@"; do
        apt_install "$package"
    done
    command -v systemctl >/dev/null || return 0
    for unit in $(comm -13 <(echo "$before") <(enabled)); do
        as_root systemctl --quiet disable "$unit" >/dev/null 2>&1 || echo "$unit is installed, and cannot be disabled" >&2
    done
}

status=0
absent=() # as "PROGRAMS PACKAGE NAME"
while read -r programs package name; do
    case $programs in '' | '#'*) continue ;; esac
    there "$programs" || absent+=("$programs $package $name")
done <tests/tools.txt
if [ -n "${KAFKA:-}${RULER:-}" ] && ! there mvn; then absent+=("mvn maven Maven"); fi
if [ -n "${RULER:-}" ] && ! there javac; then absent+=("javac default-jdk-headless JDK"); fi
# Go 1.26 is the release that bench/rivals/centrifuge/go.mod and bench/rivals/nats/go.mod ask for.
if [ -n "${CENTRIFUGE:-}${NATS:-}" ] && ! there go; then absent+=("go golang-go>=2:1.26~ Go"); fi

# packages ENTRY…: prints the entries' packages, each only once, even if a package has two of the programs.
packages() {
    printf '%s\n' "$@" | awk 'NF { sub(/>=.*/, "", $2); print $2 }' | sort -u
}

if [ "${#absent[@]}" -gt 0 ] && ! command -v apt-get >/dev/null; then
    echo "there is no apt-get here: install these packages with your system's tools (the names are Debian's):" \
        "$(packages "${absent[@]}" | paste -s -d ' ')" >&2
    status=1
elif [ "${#absent[@]}" -gt 0 ]; then
    ! apt_possible || apt_update # if this fails, older lists may still have the packages
    wanted=()
    for each in "${absent[@]}"; do
        read -r programs package name <<<"$each"
        if available "$package"; then wanted+=("$each"); else echo "this release has no $name ($package)" >&2; fi
    done
    mapfile -t names < <(packages ${wanted[@]+"${wanted[@]}"})
    if apt_possible; then
        apt_without_starting install_each ${names[@]+"${names[@]}"}
    else
        echo "not root, and sudo would ask for a password. Run this, and stop the servers that it starts (the tests" \
            "start their own): sudo apt-get install --no-install-recommends ${names[*]-}" >&2
    fi
    for each in ${wanted[@]+"${wanted[@]}"}; do
        read -r programs package name <<<"$each"
        there "$programs" || { echo "not installed: $name; the tests that need it will be skipped" >&2; status=1; }
    done
fi

if [ -n "${KAFKA:-}" ] && there mvn; then
    # `make test-tools KAFKA=1` makes the environment before it runs this script.
    JAVA_HOME=$(bash bench/java.sh) && export JAVA_HOME && .venv/bin/python - <<'END' || status=1
import sys
from ingeborg.bench import rivals
from ingeborg.bench.rivals import kafka_jars
try:
    kafka_jars.ensure(kafka_jars.CACHE, kafka_jars.java_home())
except rivals.RivalError as error:
    sys.exit(f"Kafka: {error}")
END
fi

if [ -n "${RULER:-}" ] && there mvn && there javac; then
    .venv/bin/python - <<'END' || status=1
import sys
from ingeborg.bench import rivals
from tests.filters import ruler
try:
    ruler.ensure()
except rivals.RivalError as error:
    sys.exit(f"Event Ruler: {error}")
END
fi

# built NAME: builds a program of bench/rivals/go_programs.py with Go.
built() {
    .venv/bin/python - "$1" <<'END'
import sys
from ingeborg.bench import rivals
from ingeborg.bench.rivals import go_programs
[program] = [each for each in go_programs.PROGRAMS if each.name == sys.argv[1]]
try:
    go_programs.ensure(program)
except rivals.RivalError as error:
    sys.exit(f"{program.title}: {error}")
END
}

if [ -n "${CENTRIFUGE:-}" ] && there go; then built centrifuge || status=1; fi
if [ -n "${NATS:-}" ] && there go; then built nats || status=1; fi
[ "$status" -ne 0 ] || echo "all tools for the tests are installed" >&2
exit "$status"
