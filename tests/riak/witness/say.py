"""Carry out the steps on standard input with the official client, and print the results. Runs in the witness's
environment.

Input: ``{"host", "port", "steps": [...]}``. A step has ``type``, ``bucket``, ``key`` and one of these: ``"get": true``
(the answer is the values of all siblings), ``"put": VALUE`` (replaces what was just read, siblings included),
``"blind": VALUE`` (a new object, without reading the existing one) or ``"delete": true``. Values are base64. Output: a
list, for every step the base64 values that exist afterwards; ``null`` stands for a deleted one.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode

import modern_python  # noqa: F401  (must come before riak)
import riak
from riak.content import RiakContent


def values(obj):
    return sorted(b64encode(s.encoded_data).decode() if s.exists else None for s in obj.siblings) if obj.exists else []


def do(client, step):
    bucket = client.bucket_type(step["type"]).bucket(step["bucket"])
    obj = bucket.new(step["key"]) if "blind" in step else bucket.get(step["key"])
    if "put" in step or "blind" in step:
        content = RiakContent(obj)
        content.content_type = "application/msgpack"
        content.encoded_data = b64decode(step.get("put", step.get("blind")))
        obj.siblings = [content]
        obj.store()
    if "delete" in step:
        obj.delete()
    return values(bucket.get(step["key"]))


def main():
    request = json.load(sys.stdin)
    client = riak.RiakClient(protocol="pbc", nodes=[{"host": request["host"], "pb_port": request["port"]}])
    json.dump([do(client, step) for step in request["steps"]], sys.stdout)
    client.close()


main()
