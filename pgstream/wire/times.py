"""Dates, times and numbers between PostgreSQL's text and binary format.

Owns: PostgreSQL's day and microsecond counts (since 2000-01-01, in the proleptic Gregorian calendar, every year that
it has, BC too), infinities, and numeric's digits in base 10,000.
Must not know: messages. Start reading at ``timestamp_to_binary``.
"""

from __future__ import annotations

import re
import struct

_DATE = re.compile(r"(\d+)-(\d\d)-(\d\d)")
_TIME = re.compile(r"[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?")
_ZONE = re.compile(r"([+-])(\d\d)(?::?(\d\d))?(?::?(\d\d))?\s*(?:BC)?\Z")
_NUMBER = re.compile(r"([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?\Z")
_DAY_US = 86_400_000_000
_EPOCH = 730_425
"""Days from 0000-03-01 to 2000-01-01."""
_INT32, _INT64 = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)
_WORDS = ("-infinity", "infinity")
_SPECIAL = {"NaN": 0xC000, "Infinity": 0xD000, "-Infinity": 0xF000}


def _days(text: str) -> int:
    m = _DATE.match(text)
    if m is None:
        raise ValueError(f"not a date: {text}")
    year, month, day = int(m[1]), int(m[2]), int(m[3])
    if text.endswith("BC"):
        year = 1 - year
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH


def _date_text(days: int) -> tuple[str, str]:
    """The date, and " BC" or nothing."""
    era, of_era = divmod(days + _EPOCH, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    year += era * 400 + (month >= 10)
    month = month + 3 if month < 10 else month - 9
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day:02}", "" if year > 0 else " BC"


def date_to_binary(text: str) -> bytes:
    if text in _WORDS:
        return struct.pack(">i", _INT32[_WORDS.index(text)])
    return struct.pack(">i", _days(text))


def date_to_text(data: bytes) -> str:
    (days,) = struct.unpack(">i", data)
    return _WORDS[_INT32.index(days)] if days in _INT32 else "".join(_date_text(days))


def timestamp_to_binary(text: str) -> bytes:
    """With a zone it counts in UTC, without one as written."""
    if text in _WORDS:
        return struct.pack(">q", _INT64[_WORDS.index(text)])
    us = _days(text) * _DAY_US
    if (m := _TIME.search(text)) is not None:
        us += _since_midnight(m)
        if (zone := _ZONE.search(text, m.end())) is not None:
            offset = int(zone[2]) * 3600 + int(zone[3] or 0) * 60 + int(zone[4] or 0)
            us -= (offset if zone[1] == "+" else -offset) * 1_000_000
    return struct.pack(">q", us)


def timestamp_to_text(data: bytes, zone: str = "") -> str:
    (us,) = struct.unpack(">q", data)
    if us in _INT64:
        return _WORDS[_INT64.index(us)]
    days, rest = divmod(us, _DAY_US)
    date, bc = _date_text(days)
    return f"{date} {_clock(rest)}{zone}{bc}"


def time_to_binary(text: str) -> bytes:
    if (m := _TIME.fullmatch(f" {text}")) is None:
        raise ValueError(f"not a time: {text}")
    return struct.pack(">q", _since_midnight(m))


def _since_midnight(m: re.Match[str]) -> int:
    return (int(m[1]) * 3600 + int(m[2]) * 60 + int(m[3] or 0)) * 1_000_000 + int((m[4] or "0").ljust(6, "0"))


def time_to_text(data: bytes) -> str:
    (us,) = struct.unpack(">q", data)
    return _clock(us)


def _clock(us: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return text + (f".{fraction:06}".rstrip("0") if fraction else "")


def numeric_to_binary(text: str) -> bytes:
    if text in _SPECIAL:
        return struct.pack(">hhHh", 0, 0, _SPECIAL[text], 0 if text == "NaN" else 32)  # as PostgreSQL does
    m = _NUMBER.match(text)
    if m is None or not (m[2] or m[3]):
        raise ValueError(f"not a number: {text}")
    exponent = int(m[4] or 0)
    whole, fraction = m[2], m[3]
    if exponent > 0:
        fraction = fraction.ljust(exponent, "0")
        whole, fraction = whole + fraction[:exponent], fraction[exponent:]
    elif exponent < 0:
        whole = whole.rjust(-exponent, "0")
        whole, fraction = whole[:exponent], whole[exponent:] + fraction
    scale = len(fraction)
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    digits = [int((whole + fraction)[i : i + 4]) for i in range(0, len(whole) + len(fraction), 4)]
    weight = len(whole) // 4 - 1
    while digits and digits[0] == 0:
        digits.pop(0)
        weight -= 1
    while digits and digits[-1] == 0:
        digits.pop()
    sign = 0x4000 if m[1] == "-" and digits else 0
    return struct.pack(f">hhHh{len(digits)}h", len(digits), weight if digits else 0, sign, scale, *digits)


def numeric_to_text(data: bytes) -> str:
    count, weight, sign, scale = struct.unpack_from(">hhHh", data)
    for word, special in _SPECIAL.items():
        if sign == special:
            return word
    digits = struct.unpack(f">{count}h", data[8:])
    if any(not 0 <= d < 10_000 for d in digits):
        raise ValueError('invalid digit in external "numeric" value')

    def group(n: int) -> str:
        return f"{digits[n]:04}" if 0 <= n < count else "0000"

    whole = "".join(group(n) for n in range(weight + 1)).lstrip("0") or "0"
    fraction = "".join(group(n) for n in range(weight + 1, weight + 1 + -(-scale // 4)))[:scale]
    return ("-" if sign == 0x4000 else "") + whole + ("." + fraction if scale else "")
