#!/usr/bin/env bash
# The demo, as `make demo` runs it: two endpoint processes on a fresh embedded store, some seconds of radio (or of a
# recorded now-playing log), the digest by Spark, the report. It writes everything into one new folder under runs/.
#
#   DURATION  seconds of load (20)
#   REPLAY    a now-playing log (CSV, gzipped or plain) to replay instead of the made-up radio
#   RUN       the folder to write to (runs/demo-<time>)
#
# Exits with 0 only if every step did and nothing was lost. In any case it leaves no process behind.
set -euo pipefail

cd "$(dirname "$0")/.."
bin=.venv/bin
duration=${DURATION:-20}
replay=${REPLAY:-}
run=${RUN:-runs/demo-$(date +%Y%m%d-%H%M%S)}
# Two endpoints open an empty LMDB directory in a second or two; a loaded machine gets more time, up to a limit.
ready_seconds_max=30
# An orderly leave hands over and drains; `serve` itself ends its endpoints 20 s after their drain-time (5 s). If it
# takes longer than that, this is a defect, which the demo must show instead of waiting.
stop_seconds_max=30
# An interrupted run waits for messages under way, and then closes its connections.
step_seconds_max=60

# The demo is the same for every user: it ignores settings for their own endpoints.
unset "${!INGEBORG_@}"

serve_pid=
step_pid=
declare -A told

say() { printf '\n== %s\n' "$*"; }

fail() {
    echo "demo: $*" >&2
    exit 1
}

# Every program starts in its own process group (set -m): Ctrl-C reaches this script alone, which then ends the rest in
# order.
alive() { [ -n "$1" ] && kill -0 "$1" 2>/dev/null; }

# Sleep a tenth of a second, or until a signal comes, which does not reach the process that sleeps.
pause() {
    set -m
    sleep 0.1 &
    set +m
    wait "$!" || true
}

# end PID SECONDS: tells a process to end, and waits. A process ends its own children; after SECONDS this ends them.
end() {
    local pid=$1 waited=0
    # Once: to `loadgen` a second signal means "at once".
    [ -n "${told[$pid]:-}" ] || kill -TERM "$pid" 2>/dev/null || return 0
    told[$pid]=yes
    while alive "$pid" && [ "$waited" -lt $(($2 * 10)) ]; do
        pause
        waited=$((waited + 1))
    done
    alive "$pid" || return 0
    kill -KILL -- "-$pid" 2>/dev/null || true
    return 1
}

# stop_serve: ends the endpoints as an operator would, and fails if they do not end in time or not cleanly.
stop_serve() {
    local status=0
    [ -n "$serve_pid" ] || return 0
    end "$serve_pid" "$stop_seconds_max" || {
        echo "demo: the endpoints did not stop within $stop_seconds_max s; killed (their log: $run/serve.log)" >&2
        return 1
    }
    wait "$serve_pid" || status=$?
    serve_pid=
    # 143: ended by the signal itself, which is a valid end of a process that has nothing to clean up.
    [ "$status" -eq 0 ] || [ "$status" -eq 143 ] || {
        echo "demo: the endpoints ended with status $status (their log: $run/serve.log)" >&2
        return 1
    }
}

# step COMMAND…: runs it so that a signal reaches this script at once, not only after the command.
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

# End the step under way before the endpoints that it uses; then any job that has just started and has no name here yet.
leave() {
    local status=$? pid
    trap - EXIT
    # Keep the shell from reporting a process that the same signal has just ended.
    jobs >/dev/null
    trap 'kill_all' INT TERM
    ! alive "$step_pid" || end "$step_pid" "$step_seconds_max" || true
    stop_serve || [ "$status" -ne 0 ] || status=1
    for pid in $(jobs -p); do
        end "$pid" "$step_seconds_max" || true
    done
    case $status in
        0) ;;
        130 | 143) echo "demo: interrupted; what it wrote is in $run" >&2 ;;
        *) echo "demo: failed; what it wrote is in $run" >&2 ;;
    esac
    exit "$status"
}

# On a second signal: kill everything, without an orderly end.
kill_all() {
    local pid
    for pid in $(jobs -p); do
        kill -KILL -- "-$pid" 2>/dev/null || true
    done
}

trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$run"

# Reject a log that cannot be replayed before anything starts.
[ -z "$replay" ] || step "$bin/loadgen" preview "$replay" --duration-s "$duration" >"$run/preview"

# Both ports are free at this moment; if another program takes one in between, serve fails and says so.
step "$bin/python" -c 'from ingeborg.bench.starting.ports import claim; print(claim(2).first)' >"$run/port"
port=$(<"$run/port")

say "two endpoints on an empty store ($run/store)"
set -m
"$bin/ingeborg" serve --host 127.0.0.1 --port "$port" --endpoints 2 --store "lmdb:$run/store" \
    >"$run/serve.log" 2>&1 </dev/null &
set +m
serve_pid=$!

endpoint_urls() { grep -soE 'ws://127\.0\.0\.1:[0-9]+' "$run/serve.log" | sort -u || true; }

waited=0
while mapfile -t urls < <(endpoint_urls) && [ "${#urls[@]}" -lt 2 ]; do
    alive "$serve_pid" || { cat "$run/serve.log" >&2; fail "the endpoints did not start"; }
    [ "$waited" -lt $((ready_seconds_max * 10)) ] || { cat "$run/serve.log" >&2; fail "not ready in $ready_seconds_max s"; }
    pause
    waited=$((waited + 1))
done
printf '%s\n' "${urls[@]}"

# generate COMMAND…: a step that may end with 3, loadgen's code for "done, but deliveries or connections were lost": the
# log still gives figures, and the demo fails at the end.
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
# The store is no longer needed, and one per demo would fill the disk; logs and figures stay.
rm -rf "$run/store"

say "digest (Spark)"
step "$bin/bench" digest "$run/log" --out "$run/digest"
say "report"
step "$bin/bench" report "$run/digest" --out "$run/report.html"
step "$bin/bench" summary "$run/digest"
printf '\nreport: %s\n' "$run/report.html"
[ -z "$lost" ] || fail "deliveries or connections were lost: see above, and $run/serve.log"
