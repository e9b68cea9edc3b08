#!/usr/bin/env bash
# Prints the home of a Java that runs Spark: 17 or newer. Looks at JAVA_HOME, the java on PATH and the system's usual
# folder, in this order. If there is none, it installs Debian's headless runtime with apt, as root; if that is not
# possible, it says what to install and fails.
set -u

# major JAVA: print that Java's major version, from "17.0.15" as from "21"; print nothing if it does not run.
major() {
    "$1" -version 2>&1 | sed -n '1,3s/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

# home_of JAVA: two levels above the real file, without following the links by hand.
home_of() {
    dirname "$(dirname "$(readlink -f "$1")")"
}

find_java() {
    local java version
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} "$(command -v java)" /usr/lib/jvm/*/bin/java; do
        [ -x "$java" ] || continue
        version=$(major "$java")
        if [ "${version:-0}" -ge 17 ]; then
            home_of "$java"
            return 0
        fi
    done
    return 1
}

find_java && exit 0
# shellcheck source=.ci/apt.sh
. "$(dirname "$0")/../.ci/apt.sh"
if apt_possible; then
    # Releases carry different ones; 17 and 21 are the two Spark is tested with.
    apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless || apt_install default-jre-headless
    find_java && exit 0
fi
echo "Java 17 or newer is needed (Spark digests the measurements with it), and none was found." \
    "Install a headless runtime (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17)," \
    "or set JAVA_HOME to one." >&2
exit 1
