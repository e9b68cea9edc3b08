#!/bin/bash
# Replaces the image's hook of the same name. When this node answers, the image's start script sources the hook, under
# `set -ex`. RIAK_ADMIN, HOST and COORDINATOR_NODE_HOST come from that script. The image's own hook joins each node
# separately and immediately, through a web console's interface, so five nodes that start together make conflicting
# plans for the ring. With this hook, the members only request to join, and the coordinator makes one plan for all of
# them (form-cluster.sh).

# Remove the file that an earlier start left in the container, so that the file shows the result of this start's check.
rm -f "${FORMED:-/tmp/cluster-formed}"

if [ "$HOST" = "$COORDINATOR_NODE_HOST" ]; then
    # Runs in the background, because the start script has to continue: it keeps the container running, and catches the
    # stop signal.
    bash /etc/ingeborg/form-cluster.sh &
else
    # The coordinator can take a minute to start. This loop requests to join every two seconds, for five minutes. Then
    # the start fails, and the restarted container tries again. A node that is already in the cluster has nothing to do.
    for attempt in $(seq 1 150); do
        if $RIAK_ADMIN member-status | grep -qF "'riak@$COORDINATOR_NODE_HOST'"; then
            break
        fi
        $RIAK_ADMIN cluster join "riak@$COORDINATOR_NODE_HOST" || sleep 2
        if [ "$attempt" -eq 150 ]; then
            echo "could not join riak@$COORDINATOR_NODE_HOST" >&2
            exit 1
        fi
    done
fi
