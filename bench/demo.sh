#!/usr/bin/env bash
# The demo, as `make demo` runs it: two endpoint processes on a fresh embedded store, some seconds of radio (or of a
# recorded now-playing log), the digest by Spark, the report. Everything it writes lies in one new folder under runs/.
#
#   DURATION  seconds of load (20)
#   REPLAY    a now-playing log (CSV, gzip or not) to replay instead of the made-up radio
#   RUN       the folder to write to (runs/demo-<time>)
#
# Ends with 0 only if every step did and nothing was lost. However it ends, it leaves no process behind.
set -euo pipefail

cd "$(dirname "$0")/.."
bin=.venv/bin
duration=${DURATION:-20}
replay=${REPLAY:-}
run=${RUN:-runs/demo-$(date +%Y%m%d-%H%M%S)}
# Two endpoints open an empty LMDB directory in a second or two; a loaded machine is given its time, but not for ever.
ready_seconds_max=30
# An orderly leave hands over and drains; `serve` itself ends its endpoints 20 s after their drain-time (5 s). Longer
# than this is a defect that the demo must show, not wait for.
stop_seconds_max=30

# The demo is the same for everybody, whatever they have set for endpoints of their own.
unset "${!INGEBORG_@}"

serve_pid=
step_pid=

say() { printf '\n== %s\n' "$*"; }

fail() {
    echo "demo: $*" >&2
    exit 1
}

# Everything is started as a process group of its own (set -m), so that it can be ended with all it started.
alive() { [ -n "$1" ] && kill -0 "$1" 2>/dev/null; }

# stop_serve: ends the endpoints as an operator would, and fails if they do not end in time or not cleanly.
stop_serve() {
    local pid=$serve_pid waited=0 status=0
    serve_pid=
    [ -n "$pid" ] || return 0
    kill -TERM "$pid" 2>/dev/null || true
    while alive "$pid" && [ "$waited" -lt $((stop_seconds_max * 10)) ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    if alive "$pid"; then
        kill -KILL -- "-$pid"
        echo "demo: the endpoints did not stop within $stop_seconds_max s; killed (their log: $run/serve.log)" >&2
        return 1
    fi
    wait "$pid" || status=$?
    # 143: ended by the signal itself, which is how a process that needs no tidying may end.
    [ "$status" -eq 0 ] || [ "$status" -eq 143 ] || {
        echo "demo: the endpoints ended with status $status (their log: $run/serve.log)" >&2
        return 1
    }
}

# step COMMAND…: runs it so that a signal reaches this script at once and not only when the command is through.
step() {
    local status=0
    set -m
    "$@" </dev/null &
    set +m
    step_pid=$!
    wait "$step_pid" || status=$?
    step_pid=
    return "$status"
}

leave() {
    local status=$?
    trap - EXIT INT TERM
    if alive "$step_pid"; then
        kill -TERM -- "-$step_pid" || true
        wait "$step_pid" || true
    fi
    stop_serve || status=1
    [ "$status" -eq 0 ] || echo "demo: failed; what it wrote is in $run" >&2
    exit "$status"
}
[ -z "$replay" ] || [ -r "$replay" ] || fail "REPLAY=$replay cannot be read"
mkdir -p "$run"
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Both ports of the pair are free at this moment; serve fails, and says so, if somebody takes one in between.
port=$("$bin/python" - <<'PYTHON'
import random
import socket

for port in random.sample(range(9000, 9900, 2), 100):
    try:
        for offset in (0, 1):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port + offset))
    except OSError:
        continue
    print(port)
    break
else:
    raise SystemExit("no two free ports next to each other between 9000 and 9900")
PYTHON
)

say "two endpoints on an empty store ($run/store)"
set -m
"$bin/ingeborg" serve --host 127.0.0.1 --port "$port" --endpoints 2 --store "lmdb:$run/store" \
    >"$run/serve.log" 2>&1 </dev/null &
set +m
serve_pid=$!

endpoint_urls() { grep -oE 'ws://127\.0\.0\.1:[0-9]+' "$run/serve.log" | sort -u || true; }

waited=0
while [ "$(endpoint_urls | wc -l)" -lt 2 ]; do
    alive "$serve_pid" || { cat "$run/serve.log" >&2; fail "the endpoints did not start"; }
    [ "$waited" -lt $((ready_seconds_max * 10)) ] || { cat "$run/serve.log" >&2; fail "not ready in $ready_seconds_max s"; }
    sleep 0.1
    waited=$((waited + 1))
done
mapfile -t urls < <(endpoint_urls)
printf '%s\n' "${urls[@]}"

# generate COMMAND…: a step that may end with 3, loadgen's word for "done, but deliveries or connections were lost": there
# is a log to make figures of, and the demo fails in the end.
lost=
generate() {
    local status=0
    step "$@" || status=$?
    [ "$status" -ne 3 ] || lost=yes
    [ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit "$status"
}

load=(--url "${urls[0]}" --url "${urls[1]}" --out "$run/log" --duration-s "$duration")
if [ -n "$replay" ]; then
    say "$duration s of $(basename "$replay")"
    generate "$bin/loadgen" replay "$replay" "${load[@]}"
else
    say "$duration s of radio"
    generate "$bin/loadgen" radio "${load[@]}"
fi

say "stopping the endpoints"
stop_serve
# The store has served its purpose, and a map of it per demo would fill the disk; logs and figures stay.
rm -rf "$run/store"

say "digest (Spark)"
step "$bin/bench" digest "$run/log" --out "$run/digest"
say "report"
step "$bin/bench" report "$run/digest" --out "$run/report.html"
step "$bin/bench" summary "$run/digest"
printf '\nreport: %s\n' "$run/report.html"
[ -z "$lost" ] || fail "deliveries or connections were lost: see above, and $run/serve.log"
