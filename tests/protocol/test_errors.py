"""The tables of codes, and the exception that carries one."""

from __future__ import annotations

import pytest

from ingeborg.protocol.errors import CLOSES, ERRORS, REPLACED, Next, ProtocolError


def test_every_row_is_found_by_its_code() -> None:
    assert all(code == row.code for code, row in ERRORS.items())
    assert all(code == row.code for code, row in CLOSES.items())


@pytest.mark.parametrize("code", ERRORS)
def test_an_error_knows_what_may_be_done_about_it(code: str) -> None:
    error = ProtocolError(code, "why", failed=["b"])
    assert error.next is ERRORS[code].next
    assert (error.info, error.extra, str(error)) == ("why", {"failed": ["b"]}, f"{code}: why")


def test_what_the_client_did_wrong_is_to_be_fixed_and_never_retried() -> None:
    mine = {code for code, row in ERRORS.items() if row.next is Next.FIX}
    assert mine == {
        "bad_json",
        "bad_command",
        "bad_state",
        "bad_topic",
        "bad_filter",
        "too_large",
        "too_many_topics",
        "unauthorized",
        "forbidden",
        "conflict",
    }


def test_a_partial_delivery_is_never_retried() -> None:
    assert ERRORS["partial"].next is Next.GIVE_UP


def test_close_codes_are_ones_an_application_may_use() -> None:
    """RFC 6455 section 7.4: 1005, 1006 and 1015 never go over the wire; 4000 to 4999 are private."""
    assert all(1000 <= code <= 1014 or 4000 <= code <= 4999 for code in CLOSES)
    assert not CLOSES.keys() & {1004, 1005, 1006}


def test_reasons_fit_a_close_frame() -> None:
    """RFC 6455 section 5.5: 125 bytes, including two for the code."""
    assert all(len(row.reason.encode()) <= 123 for row in CLOSES.values())


def test_a_replaced_client_stays_away() -> None:
    assert REPLACED.code == 4001
    assert not REPLACED.reconnect
