#!/usr/bin/env bash
# The demo that `make demo` runs. It starts two endpoint processes on an empty embedded store, and generates a few
# seconds of radio traffic (or replays a recorded now-playing log). Then it digests the logs with Spark, and makes the
# report. The demo writes everything into one new folder under runs/.
#
#   DURATION  seconds of load (20)
#   REPLAY    a now-playing log (CSV, gzipped or plain) to replay instead of the made-up radio
#   RUN       the folder to write to (runs/demo-<time>)
#
# Exits with 0 only if every step succeeded and nothing was lost. It never leaves a process behind.
set -euo pipefail

cd "$(dirname "$0")/.."
bin=.venv/bin
duration=${DURATION:-20}
replay=${REPLAY:-}
run=${RUN:-runs/demo-$(date +%Y%m%d-%H%M%S)}
# Two endpoints need a second or two to open an empty LMDB directory. This limit leaves time for a loaded machine.
ready_seconds_max=30
# An endpoint that stops in an orderly way hands over its work and drains its connections. `serve` itself ends its
# endpoints 20 s after their drain-time (5 s). A longer stop is a defect, which the demo must report instead of waiting.
stop_seconds_max=30
# An interrupted `loadgen` waits for messages in transit, and then closes its connections.
step_seconds_max=60

# Ignore the user's settings for their own endpoints, so that the demo is the same for every user.
unset "${!INGEBORG_@}"

serve_pid=
step_pid=
declare -A told

say() { printf '\n== %s\n' "$*"; }

fail() {
    echo "demo: $*" >&2
    exit 1
}

# Every program starts in its own process group (set -m). So Ctrl-C reaches only this script, which then ends the
# programs in order.
alive() { [ -n "$1" ] && kill -0 "$1" 2>/dev/null; }

# Sleep a tenth of a second, or until this script gets a signal. The signal does not reach the `sleep` process.
pause() {
    set -m
    sleep 0.1 &
    set +m
    wait "$!" || true
}

# end PID SECONDS: sends SIGTERM to a process and waits for its end. The process is expected to end its own children.
# After SECONDS, this kills the process and its children.
end() {
    local pid=$1 waited=0
    # Send the signal only once, because a second one makes `loadgen` stop immediately.
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

# stop_serve: ends the endpoints as an operator would, and fails if they do not end in time or end with an error.
stop_serve() {
    local status=0
    [ -n "$serve_pid" ] || return 0
    end "$serve_pid" "$stop_seconds_max" || {
        echo "demo: the endpoints did not stop within $stop_seconds_max s; killed (their log: $run/serve.log)" >&2
        return 1
    }
    wait "$serve_pid" || status=$?
    serve_pid=
    # 143 means that the signal itself ended the process. That is valid if the process had nothing to clean up.
    [ "$status" -eq 0 ] || [ "$status" -eq 143 ] || {
        echo "demo: the endpoints ended with status $status (their log: $run/serve.log)" >&2
        return 1
    }
}

# step COMMAND…: runs the command, during which this script handles a signal immediately and not only afterwards.
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

# End the current step before the endpoints that it uses. Then end any job that has just started and is in no variable
# yet.
leave() {
    local status=$? pid
    trap - EXIT
    # This keeps the shell from reporting a process that the same signal has just ended.
    jobs >/dev/null
    trap 'kill_all' INT TERM
    ! alive "$step_pid" || end "$step_pid" "$step_seconds_max" || true
    stop_serve || [ "$status" -ne 0 ] || status=1
    for pid in $(jobs -p); do
        end "$pid" "$step_seconds_max" || true
    done
    case $status in
        0) ;;
        130 | 143) echo "demo: interrupted; its files are in $run" >&2 ;;
        *) echo "demo: failed; its files are in $run" >&2 ;;
    esac
    exit "$status"
}

# On a second signal, kill everything immediately.
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

# Both ports are free at this moment. If another program takes one before `serve` opens it, `serve` fails with an error.
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

# generate COMMAND…: runs a step that may end with 3, which is loadgen's code for "done, but deliveries or connections
# were lost". The log still gives figures, and the demo fails at the end.
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
# Remove the store, because the stores of many demos would fill the disk. The logs and figures stay.
rm -rf "$run/store"

say "digest (Spark)"
step "$bin/bench" digest "$run/log" --out "$run/digest"
say "report"
step "$bin/bench" report "$run/digest" --out "$run/report.html"
step "$bin/bench" summary "$run/digest"
printf '\nreport: %s\n' "$run/report.html"
[ -z "$lost" ] || fail "deliveries or connections were lost: see above, and $run/serve.log"
