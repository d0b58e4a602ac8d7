"""From the bytes of a page to its text, as browsers do it: byte order mark, header, declaration in the page, guess."""

from __future__ import annotations

import codecs
import re

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_WIDER = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs",
    "utf-16": "utf-16-le",
}  # fmt: skip
"""What browsers take these for: the labels are used for the larger sets."""
_KNOWN = {
    "utf-8", "utf-16-le", "utf-16-be", "cp866", "cp874", "cp932", "cp949", "koi8-r", "koi8-u", "mac-roman",
    "mac-cyrillic", "gb18030", "big5hkscs", "euc_jp", "iso2022_jp", *(f"cp{n}" for n in range(1250, 1259)),
    *(f"iso8859-{n}" for n in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
}  # fmt: skip
"""Python's names for the encodings of https://encoding.spec.whatwg.org: no others are text on the web, and some of
Python's take quadratic time."""

_HEADER = re.compile(r"""charset\s*=\s*["']?\s*([\w.:+-]+)""", re.IGNORECASE)
_DECLARED = re.compile(rb"""<meta[^>]{0,300}?charset\s*=\s*["']?\s*([\w.:+-]+)""", re.IGNORECASE)
_XML = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:+-]+)["']""", re.IGNORECASE)
_LOOKED_AT = 4096


def decode(body: bytes, content_type: str) -> str:
    """The text of a body. What cannot be decoded becomes U+FFFD."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    named = _HEADER.search(content_type)
    if named and (text := _decoded(body, named[1])) is not None:
        return text
    head = body[:_LOOKED_AT]
    declared = _XML.search(head) or _DECLARED.search(head)
    if declared:
        label = declared[1].decode("ascii", "replace").lower()
        # a page whose declaration could be read byte by byte is not in UTF-16, whatever it says
        text = _decoded(body, "utf-8" if label.startswith("utf-16") else label)
        if text is not None:
            return text
    return _guessed(body)


def _decoded(body: bytes, label: str) -> str | None:
    """None if the label names no character set."""
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    name = _WIDER.get(name, name)
    return body.decode(name, "replace") if name in _KNOWN else None


def _guessed(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start > len(body) - 4:  # a cut last character
            return body.decode("utf-8", "replace")
    from charset_normalizer import from_bytes

    best = from_bytes(body[:50_000]).best()
    return body.decode(best.encoding if best else "cp1252", "replace")
