"""The official ``riak`` client, in an environment of its own, as an independent witness of what the driver stores."""
