"""Client encodings: PostgreSQL's names and the Python codecs that agree with them.

Owns: the one table. EUC_TW, for which Python has no codec, is not in it: statements of ours are
refused there, PostgreSQL's pass. SQL_ASCII means no conversion: the bytes are those of the server, which are UTF-8.
Must not know: messages. Start reading at ``CODECS``.
"""

from __future__ import annotations

from pgstream.errors import UntranslatableCharacter

UTF8 = "utf-8"
CODECS: dict[str, str] = {
    "UTF8": UTF8,
    "SQL_ASCII": UTF8,
    "BIG5": "big5",
    "EUC_CN": "gb2312",
    "EUC_JIS_2004": "euc_jis_2004",
    "EUC_JP": "euc_jp",
    "EUC_KR": "euc_kr",
    "GB18030": "gb18030",
    "GBK": "gbk",
    "ISO_8859_5": "iso8859_5",
    "ISO_8859_6": "iso8859_6",
    "ISO_8859_7": "iso8859_7",
    "ISO_8859_8": "iso8859_8",
    "JOHAB": "johab",
    "KOI8R": "koi8_r",
    "KOI8U": "koi8_u",
    "LATIN1": "latin_1",
    "LATIN2": "iso8859_2",
    "LATIN3": "iso8859_3",
    "LATIN4": "iso8859_4",
    "LATIN5": "iso8859_9",
    "LATIN6": "iso8859_10",
    "LATIN7": "iso8859_13",
    "LATIN8": "iso8859_14",
    "LATIN9": "iso8859_15",
    "LATIN10": "iso8859_16",
    "SHIFT_JIS_2004": "shift_jis_2004",
    "SJIS": "cp932",
    "UHC": "cp949",
    "WIN866": "cp866",
    "WIN874": "cp874",
    "WIN1250": "cp1250",
    "WIN1251": "cp1251",
    "WIN1252": "cp1252",
    "WIN1253": "cp1253",
    "WIN1254": "cp1254",
    "WIN1255": "cp1255",
    "WIN1256": "cp1256",
    "WIN1257": "cp1257",
    "WIN1258": "cp1258",
}
_KEPT = "UNICODE"
"""The one name that PostgreSQL reports as the client wrote it; every other becomes that of the table."""
_NAMES = {codec: name for name, codec in CODECS.items() if name != "SQL_ASCII"}


def named(reported: str) -> str:
    """The name in ``CODECS`` of what PostgreSQL reports as the client's encoding."""
    return "UTF8" if reported == _KEPT else reported


def encode(text: str, codec: str) -> bytes:
    """Text for a client. Errors: UntranslatableCharacter, as PostgreSQL words it."""
    try:
        return text.encode(codec)
    except UnicodeEncodeError as e:
        sequence = " ".join(f"0x{b:02x}" for b in e.object[e.start].encode("utf-8", "surrogatepass"))
        raise UntranslatableCharacter(sequence=sequence, encoding=_NAMES.get(codec, codec)) from None
