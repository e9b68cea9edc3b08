#!/bin/bash
# Runs in the background once at each start of the coordinator's Riak. It waits for all members, commits one plan of the
# ring for all members, and creates and activates the broker's bucket types. Only then does it create the file that
# makes the container healthy. Every step first reads the present state, so a restart repeats nothing. This script must
# never change an active bucket type, because an operator may have set its properties.
#
# Variables: CLUSTER_SIZE is the number of nodes, STEP_SECONDS the pause between checks (default: 2), and BUCKET_TYPES
# the file of names and properties.
set -uo pipefail

riak_admin=${RIAK_ADMIN:-riak-admin}
size=${CLUSTER_SIZE:?the number of nodes}
step_seconds=${STEP_SECONDS:-2}
bucket_types=${BUCKET_TYPES:-/etc/ingeborg/bucket-types}
formed=${FORMED:-/tmp/cluster-formed}
# With a check every two seconds, each step has ten minutes. A node starts in one minute, and the ring of five empty
# nodes settles in two minutes.
looks_max=300

say() { echo "form-cluster: $*"; }

# until_true WHAT COMMAND…: repeats the command until it succeeds.
until_true() {
    local what=$1
    shift
    for _ in $(seq "$looks_max"); do
        "$@" && return 0
        sleep "$step_seconds"
    done
    say "gave up: $what" >&2
    exit 1
}

# members STATUS: counts the nodes that the ring lists with this status. A node that has requested to join is "joining"
# until the commit.
members() { $riak_admin member-status 2>/dev/null | grep -cE "^($1) .*'riak@"; }

all_here() { [ "$(members 'valid|joining')" -ge "$size" ]; }

all_valid() {
    [ "$(members valid)" -ge "$size" ] && return 0
    # Riak refuses a commit if the ring has changed since Riak showed the plan. The next round then plans again.
    $riak_admin cluster plan >/dev/null && $riak_admin cluster commit
    return 1
}

ring_agreed() { $riak_admin ringready >/dev/null 2>&1; }

bucket_type_active() {
    local name=$1 properties=$2 status
    status=$($riak_admin bucket-type status "$name" 2>&1)
    case $status in
        *" is active"*) return 0 ;;
        *"may be activated"*) $riak_admin bucket-type activate "$name" ;;
        *"not an existing bucket type"*) $riak_admin bucket-type create "$name" "$properties" ;;
    esac
    return 1
}

until_true "$size nodes are not there" all_here
until_true "the ring's plan could not be committed" all_valid
until_true "the nodes do not agree on the ring" ring_agreed
while read -r name properties; do
    case $name in '' | '#'*) continue ;; esac
    until_true "bucket type $name is not active" bucket_type_active "$name" "$properties" </dev/null
    say "bucket type $name is active"
done <"$bucket_types"
touch "$formed"
say "$size nodes, all bucket types active"
