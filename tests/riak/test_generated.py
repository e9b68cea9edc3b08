"""The committed module is what the .proto file compiles to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import wants

ROOT = Path(__file__).parents[2]
PROTO = Path("ingeborg/broker/store/riak/riak.proto")


def test_the_committed_module_is_what_the_proto_file_compiles_to(tmp_path: Path) -> None:
    wants.module("grpc_tools", "dev")
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", f"--python_out={tmp_path}", str(PROTO)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)

    def text(path: Path) -> str:
        # The compiler's release does not matter as long as the rest is the same.
        lines = path.read_text().splitlines()
        return "\n".join(line for line in lines if "_serialized_" in line or "AddSerializedFile" in line)

    committed = (ROOT / PROTO).with_name("riak_pb2.py")
    assert text(tmp_path / PROTO.with_name("riak_pb2.py")) == text(committed)
