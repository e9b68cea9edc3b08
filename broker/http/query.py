"""Reads the query of a request. SPEC 1.7 and 1.8.

Owns: how a query holds fields, and JSON in a field. Must never: know which fields a path has.
"""

from __future__ import annotations

import http
from collections.abc import Set
from typing import Any, Final
from urllib.parse import parse_qs

from orjson import Fragment

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.wire import decode_value

from .parsing import BadRequest, HttpRequest

#: Maximum number of values of a field that may be given several times. The length of a target limits the other fields.
VALUES_MAX: Final = 1_000


def fields_of(request: HttpRequest, names: Set[str], several: Set[str] = frozenset()) -> dict[str, list[str]]:
    """Return the values of each field of the request's query.

    Args:
        request: the request.
        names: the fields that the query may have.
        several: the fields of ``names`` that may be given several times.

    Raises:
        BadRequest: the query has another field, a field too often, or text that is not UTF-8.
    """
    query = request.target.partition("?")[2]
    if not query:
        return {}
    try:
        fields = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=VALUES_MAX + len(names))
    except ValueError:  # also raised for text that is not UTF-8
        text = f"The query has to be UTF-8, with at most {VALUES_MAX} fields"
        raise BadRequest(http.HTTPStatus.BAD_REQUEST, text) from None
    for name, values in fields.items():
        if name not in names:
            may = ", ".join(sorted(names))
            text = f"The query has the field {name[:64]!r}, but it may have only these: {may}"
            raise BadRequest(http.HTTPStatus.BAD_REQUEST, text)
        if len(values) > (VALUES_MAX if name in several else 1):
            raise BadRequest(http.HTTPStatus.BAD_REQUEST, f"The query has the field {name!r} too often")
    return fields


def json_of(name: str, text: str) -> Any:
    """Return a field's JSON text as a part of a command. Raises ``BadRequest`` if the text is not JSON. The core checks
    the value."""
    try:
        decode_value(text.encode())
    except ProtocolError as error:
        raise BadRequest(http.HTTPStatus.BAD_REQUEST, f"The field {name!r} of the query: {error.info}") from None
    return Fragment(text)
