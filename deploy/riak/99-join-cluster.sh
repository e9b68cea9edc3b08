#!/bin/bash
# Replaces the image's hook of the same name. The image's start script sources it, under `set -ex`, once this node
# answers; RIAK_ADMIN, HOST and COORDINATOR_NODE_HOST come from that script. The image's own hook joins each node
# separately, at once, through a web console's interface: five nodes that start together plan the ring against each
# other. Here the members only request to join, and the coordinator plans once for all (form-cluster.sh).

# Says "formed" only after this start's own check, no matter what an earlier start left in the container.
rm -f "${FORMED:-/tmp/cluster-formed}"

if [ "$HOST" = "$COORDINATOR_NODE_HOST" ]; then
    # Runs in the background: the start script must go on to hold the container and to catch its stop signal.
    bash /etc/ingeborg/form-cluster.sh &
else
    # The coordinator can take a minute to start. This asks every two seconds, for five minutes. Then the start fails,
    # and the restarted container tries again. A node that is already in the cluster has nothing to do.
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
