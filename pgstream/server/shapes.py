"""Shapes: chunks laid out as one seen before, told by all of their message headers in one comparison.

The same prepared statement read over and over makes chunks of few layouts. A chunk that begins at a message and has, at
the places where a known chunk of its length has them, the same headers, consists of the same messages: each header
says where the next one stands. So its effect on ``flight`` is known without a turn of Python for each message. Whether
a portal has a name counts, too: the byte behind such a header is taken for part of it.

Owns: the layouts seen, by the length of the chunk, shared by all sessions.
Must not know: what messages mean, who reads them. Start reading at ``learn``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Sequence

from pgstream.wire.framing import header

LONGEST = 2048
"""Bytes of a chunk; longer ones have more in them than a walk costs. Bounds the number of shapes, too."""

Shape = tuple[Callable[..., tuple[bytes, ...]], tuple[bytes, ...]]
"""What takes the headers out of the end of a chunk, of one length, and what they are in the known one."""
Shapes = dict[int, Shape]

requests: Shapes = {}
"""Of clients: extended-protocol messages that name statements and portals, ended by the only Sync."""
answers: Shapes = {}
"""Of PostgreSQL: answers and rows, ended by the only ReadyForQuery."""


def learn(
    shapes: Shapes, data: bytes | bytearray, kinds: Container[int], last: int, named: Container[int] = ()
) -> None:
    """Keep the layout of a whole chunk, if the like of it can be told by its headers alone.

    That is so when it consists of messages of these ``kinds``, ended by one of the kind ``last``. Of the kinds that are
    ``named`` the first byte behind the header belongs to it: zero for the empty name.
    """
    begins, pos = [], 0
    while pos < len(data):
        kind, length = header(data, pos)
        after = pos + length + 1
        if kind not in kinds and (kind != last or after != len(data)):
            return
        begins.append((pos, 6 if kind in named and length > 4 else 5))
        pos = after
    if begins and kind == last:
        shapes[len(data)] = _shape(data, begins)


def _shape(data: bytes | bytearray, begins: Sequence[tuple[int, int]]) -> Shape:
    layout, at, i = ">", 0, 0
    while i < len(begins):
        begin = end = begins[i][0]
        while i < len(begins) and begins[i][0] == end:  # headers with nothing between are taken as one
            end, i = end + begins[i][1], i + 1
        layout += f"{begin - at}x{end - begin}s"
        at = end
    unpack = struct.Struct(f"{layout}{len(data) - at}x").unpack_from
    return unpack, unpack(data)
