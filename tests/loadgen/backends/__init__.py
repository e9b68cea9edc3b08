"""The adapters, each against its real server."""

import pytest

pytest.register_assert_rewrite(f"{__name__}.contract")
