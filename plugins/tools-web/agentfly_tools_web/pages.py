"""A page as the model reads it, and how it is made from a reply."""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

from agentfly_tools_web.charsets import decode
from agentfly_tools_web.fetching import FetchError, Reply

MAX_CHARS = 2_000_000
"""Characters of a source that are looked at: bounds the time that reading a page takes."""

MAX_LINKS = 200

_SHORT = 500
"""Characters of a text that may have lost too much to the removal of menus and the like."""

_HTML = ("text/html", "application/xhtml+xml")
_TEXT = re.compile(r"text/|application/(json|xml|javascript|x-javascript|yaml|x-yaml|toml|csv|.*\+(json|xml)$)")
_ROOT = re.compile(r"<(!doctype\s+html|html|head|body|title|meta)\b", re.IGNORECASE)
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Page:
    """A page's title, its text in markdown, and where its links lead: (their text, address), each address once."""

    url: str
    title: str
    text: str
    links: tuple[tuple[str, str], ...] = ()

    def parts(self, size: int) -> list[str]:
        """The text in parts of at most ``size`` characters, cut between paragraphs, lines or words if it can be."""
        return split(self.text, size)


class PageReader:
    """Makes pages of replies, and remembers the last ones: many chains read the same page. Any thread may ask."""

    def __init__(self, size: int = 64) -> None:
        self._size = size
        self._pages: OrderedDict[tuple[str, str, bytes], Page] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, reply: Reply) -> Page:
        """The page in a reply.

        Raises:
            FetchError: the status is no success, or there is no text in it.
        """
        key = (reply.url, reply.content_type, hashlib.sha256(reply.body).digest())
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
                return self._pages[key]
        page = make_page(reply)
        with self._lock:
            self._pages[key] = page
            if len(self._pages) > self._size:
                self._pages.popitem(last=False)
        return page


def make_page(reply: Reply) -> Page:
    """See ``PageReader.read``."""
    if not 200 <= reply.status < 300:
        raise FetchError(f"the server answers with status {reply.status}{_MEANINGS.get(reply.status, '')}")
    kind = reply.content_type.partition(";")[0].strip().lower()
    if kind and kind not in _HTML and not _TEXT.match(kind):
        raise FetchError(f"it is of the type {kind!r:.80}, which cannot be read as text")
    source = decode(reply.body, reply.content_type)[:MAX_CHARS]
    if "\0" in source:
        raise FetchError("it is no text")
    if kind in _HTML or (not kind and _is_markup(source)):
        return _from_html(source, reply.url)
    return Page(reply.url, "", source.replace("\r\n", "\n").strip())


def _is_markup(source: str) -> bool:
    """Whether HTML begins, after a declaration of XML and comments. In one pass: no pattern that could backtrack."""
    at = 0
    for opening, closing in itertools.chain([("<?xml", ">")], itertools.repeat(("<!--", "-->"))):
        at = _skip_space(source, at)
        if source[at : at + len(opening)].lower() == opening:
            end = source.find(closing, at + len(opening))
            if end < 0:
                return False
            at = end + len(closing)
        elif opening == "<!--":
            break
    return _ROOT.match(source, at) is not None


def _skip_space(source: str, at: int) -> int:
    found = _SPACE.match(source, at)
    return found.end() if found else at


def split(text: str, size: int) -> list[str]:
    """``text`` in parts of at most ``size`` characters; at least one part. Joined, they hold every word of it."""
    parts = []
    rest = text.strip()
    while len(rest) > size:
        at = max(_last(rest, "\n\n", size), 0) or max(_last(rest, "\n", size), 0) or max(_last(rest, " ", size), 0)
        at = at or size
        parts.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    return [*parts, rest]


def _last(text: str, mark: str, size: int) -> int:
    """Where ``mark`` last stands in the second half of the first ``size`` characters, or -1."""
    return text.rfind(mark, size // 2, size)


def _from_html(source: str, url: str) -> Page:
    import trafilatura
    from lxml import etree, html

    parser = html.HTMLParser(encoding="utf-8")
    try:
        tree = html.document_fromstring(source.encode("utf-8", "replace"), parser=parser)
    except etree.ParserError:  # nothing in it
        return Page(url, "", "")
    title, links = _title(tree), _links(tree, url)
    text = trafilatura.extract(
        tree, url=url, output_format="markdown", include_formatting=True, include_comments=False, favor_recall=True
    )
    text = (text or "").strip()
    if len(text) < _SHORT and len(plain := trafilatura.html2txt(tree).strip()) > 3 * len(text) + 50:
        text = plain  # what little there is was taken for decoration
    return Page(url, title, text, links)


def _title(tree: Any) -> str:
    for path in (".//title", ".//h1"):
        for element in tree.iterfind(path):
            if text := _line(element.text_content()):
                return text[:300]
    return ""


def _links(tree: Any, url: str) -> tuple[tuple[str, str], ...]:
    base = url
    for element in tree.iterfind(".//base"):
        base = _joined(url, element.get("href") or "") or url
        break
    found: dict[str, str] = {}
    for element in tree.iterfind(".//a"):
        target = _joined(base, element.get("href") or "")
        text = _line(element.text_content())[:200]
        if target and text and target != url:
            found.setdefault(target, text)
        if len(found) == MAX_LINKS:
            break
    return tuple((text, target) for target, text in found.items())


def _joined(base: str, href: str) -> str:
    """The address that a link leads to, without fragment; empty if it is no web page."""
    try:
        target = urljoin(base, href.strip()).partition("#")[0]
    except ValueError:
        return ""
    return target if target.startswith(("http://", "https://")) and len(target) <= 2000 else ""


def _line(text: str) -> str:
    return " ".join(text.split())


_MEANINGS = {
    401: " (it wants a password)",
    403: " (forbidden)",
    404: " (there is no such page)",
    410: " (the page is gone)",
    429: " (too many requests)",
    500: " (it has an error)",
    503: " (it is not available now)",
}
