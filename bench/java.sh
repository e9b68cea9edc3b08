#!/usr/bin/env bash
# Prints the home folder of a Java that can run Spark (17 or newer). Tries JAVA_HOME, the java on PATH and the system's
# usual folder, in this order. If none has such a Java, this installs Debian's headless runtime with apt, which needs
# root. If that is not possible, it says what to install and fails.
set -u

# major JAVA: prints the major version of a Java, which may report "17.0.15" or "21". Prints nothing if it does not run.
major() {
    "$1" -version 2>&1 | sed -n '1,3s/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

# home_of JAVA: prints the folder two levels above the real file, to which the links lead.
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
    # Debian's releases offer different versions of Java. Spark is tested with 17 and 21.
    apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless || apt_install default-jre-headless
    find_java && exit 0
fi
echo "Java 17 or newer is needed (Spark digests the measurements with it), and none was found." \
    "Install a headless runtime (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17)," \
    "or set JAVA_HOME to one." >&2
exit 1
