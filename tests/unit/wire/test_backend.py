"""How errors look on the wire, and that values survive both formats."""

from __future__ import annotations

import pytest

from pgstream.errors import NotSupported, RelayedError, UndefinedStore
from pgstream.wire import backend, values


def test_error_fields():
    message = backend.error(UndefinedStore(name="é", at=7), offset=10)
    assert message[:1] == b"E" and int.from_bytes(message[1:5], "big") == len(message) - 1
    assert backend.decode_fields(message[5:]) == {
        "S": "ERROR",
        "V": "ERROR",
        "C": "42704",
        "M": 'store "é" does not exist',
        "H": "LIST STORES shows the stores you can see.",
        "P": "18",
        "R": "undefined_store",
    }


def test_a_moved_position():
    told = backend.error(UndefinedStore(name="P9", at=7))
    assert backend.moved(told, 10) == backend.error(UndefinedStore(name="P9", at=17))
    without = backend.notice("Pay 9")
    assert backend.moved(without, 10) == without


def test_relayed_error_comes_back():
    error = RelayedError(code="3D000", text="no", detail="d", hint="h", severity="FATAL")
    back = backend.decode_error(backend.error(error)[5:])
    assert (back.sqlstate, back.text, back.detail, back.hint, back.severity) == ("3D000", "no", "d", "h", "FATAL")


def test_rows():
    assert backend.data_row([b"ab", None]) == b"D\0\0\0\x10\0\2\0\0\0\2ab\xff\xff\xff\xff"
    row = backend.row_description([("n", 23, 4, -1)], [1])
    assert row == b"T\0\0\0\x1a\0\1n\0\0\0\0\0\0\0\0\0\0\x17\0\4\xff\xff\xff\xff\0\1"


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (16, "t"),
        (16, "f"),
        (17, "\\x00ff"),
        (20, "-9223372036854775808"),
        (21, "-1"),
        (23, "2147483647"),
        (25, "Größe"),
        (700, "1.5"),
        (701, "NaN"),
        (701, "-Infinity"),
        (1700, "12.50"),
        (1700, "NaN"),
        (1082, "2024-02-29"),
        (1083, "00:00:00"),
        (1083, "23:59:59.999999"),
        (1183, "{10:11:12,NULL}"),
        (1114, "2024-01-02 03:04:05.678"),
        (2950, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        (3802, '{"a": [1, null]}'),
        (1007, "{1,NULL,3}"),
        (1015, '{a,"b c"}'),
    ],
)
def test_both_formats(oid, text):
    assert values.decoder(oid)(values.encoder(oid)(text)) == text


def test_type_that_nobody_converts():
    with pytest.raises(NotSupported):
        values.encoder(600000)
