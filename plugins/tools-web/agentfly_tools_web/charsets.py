"""From the bytes of a page to its text, as browsers do it: byte order mark, header, declaration in the page, guess."""

from __future__ import annotations

import codecs
import re

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_WIDER = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030"}
"""What browsers take these for: the labels are used for the larger sets."""

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
        return body.decode(_WIDER.get(name, name), "replace")
    except (LookupError, ValueError):  # also what is a codec but none of text, such as base64
        return None


def _guessed(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start > len(body) - 4:  # a cut last character
            return body.decode("utf-8", "replace")
    from charset_normalizer import from_bytes

    best = from_bytes(body[:50_000]).best()
    return body.decode(best.encoding if best else "cp1252", "replace")
