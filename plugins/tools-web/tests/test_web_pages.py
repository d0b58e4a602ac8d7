"""From a reply to a page: character sets, content types, broken markup, parts."""

from __future__ import annotations

import codecs

import pytest
from agentfly_tools_web.charsets import _KNOWN, decode
from agentfly_tools_web.fetching import FetchError, Reply
from agentfly_tools_web.pages import MAX_CHARS, PageReader, _is_markup, make_page, split
from hypothesis import given
from hypothesis import strategies as st

ARTICLE = """<!doctype html><html><head><meta charset="utf-8"><title> The  life of
 otters &amp; others </title></head><body>
<nav><a href="/home">Home</a> <a href="/about">About us</a></nav>
<main><article><h1>Otters</h1>
<p>The otter is a <b>carnivorous</b> mammal that lives in rivers and along coasts, as <a href="../sea?a=1&amp;b=2#x">sea
otters</a> do. It eats fish, crabs and sometimes birds, and it likes to play on wet and slippery ground.</p>
<h2>Size</h2><table><tr><th>kind</th><th>kg</th></tr><tr><td>sea otter</td><td>45</td></tr></table>
<ul><li>swims well</li><li>sleeps on its back</li></ul>
<p>A second paragraph stands here so that there is enough text on the page for it to be taken for an article.</p>
<p><a href="mailto:x@example.org">mail</a> <a href="javascript:void(0)">script</a> <a href="#top">top</a>
<a href="https://other.example/">elsewhere</a> <a href="https://other.example/">again</a> <a href="http://[bad">bad</a></p>
</article></main><script>alert("no")</script><footer>Copyright somebody</footer></body></html>"""


def page(body, kind="text/html; charset=utf-8", status=200, url="https://example.org/animals/otter"):
    return make_page(Reply(url, status, kind, body.encode() if isinstance(body, str) else body))


def test_an_article():
    made = page(ARTICLE)
    assert made.title == "The life of otters & others"
    assert "# Otters" in made.text
    assert "**carnivorous**" in made.text
    assert "| sea otter | 45 |" in made.text
    assert "- swims well" in made.text
    for gone in ("alert", "Copyright", "<", "About us"):
        assert gone not in made.text
    assert made.links == (
        ("Home", "https://example.org/home"),
        ("About us", "https://example.org/about"),
        ("sea otters", "https://example.org/sea?a=1&b=2"),
        ("elsewhere", "https://other.example/"),
    )


def test_links_start_from_the_base_that_a_page_names():
    made = page('<html><head><base href="/b/"><title>t</title></head><body><p><a href="c">see</a></p></body></html>')
    assert made.links == (("see", "https://example.org/b/c"),)


@pytest.mark.parametrize(
    "body",
    [
        "<p>unclosed <b>bold <i>both</p> otters <table><tr><td>cell",
        "<html><body><div><p>otters</div></span></p></html></html>",
        "<p>otters &nosuch; &#xFFFFFFF; &#0;</p><<<>>><p attr='",
        "otters without any markup at all",
        "<html><head><title>otters</title></head></html>",
        "<p>otters</p>" + "<div>" * 20_000,
        "<p>otters</p>" + "<b><i>" * 5_000 + "deep",
        "<?xml version='1.0' encoding='utf-16'?><html xmlns='http://www.w3.org/1999/xhtml'><body><p>otters</p></body></html>",
        "<html><body><p>" + "otters " * 100_000 + "</p></body></html>",
        '<html><body><a href="' + "x" * 100_000 + '">otters</a></body></html>',
        "<!--" + "otters",
    ],
    ids=lambda body: body[:12].encode("ascii", "replace").decode(),
)
def test_broken_markup(body):
    made = page(body)
    assert "<" not in made.text or "<<<" in body
    assert "otters" in made.text + made.title or "<!--" in body


@pytest.mark.parametrize(
    "body", ["", " ", "<html></html>", "<!doctype html>", "<html><body><script>1</script></body></html>"]
)
def test_pages_without_text(body):
    assert page(body).text == ""


def test_what_lies_beyond_the_limit_is_not_looked_at():
    assert len(page("a " * MAX_CHARS, "text/plain").text) <= MAX_CHARS


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain", "a <b> c\r\nd", "a <b> c\nd"),
        ("TEXT/PLAIN;charset=utf-8", "x", "x"),
        ("application/json", '{"a": 1}', '{"a": 1}'),
        ("application/ld+json", "{}", "{}"),
        ("application/rss+xml", "<rss/>", "<rss/>"),
        ("", "just text", "just text"),
        ("", "<!DOCTYPE html><html><body><p>marked up</p></body></html>", "marked up"),
    ],
)
def test_kinds_of_text(kind, body, text):
    assert page(body, kind).text == text


@pytest.mark.parametrize("lead", ["", " ", "<?xml version='1.0'?>", "<!---->", " <!-- a > b -->\n<!-- c -->"])
@pytest.mark.parametrize(
    ("root", "markup"), [("<HTML>", True), ("<!doctype  html>", True), ("<htmlx>", False), ("x", False)]
)
def test_markup_without_a_kind_is_known_by_its_beginning(lead, root, markup):
    assert _is_markup(lead + root) is markup


def test_a_page_of_comments_is_read_once():
    for body in ("<!---->" * 50_000 + "x", "<!--" * 50_000, "<!--->" * 50_000, " " * 500_000 + "x", "<?xml " * 50_000):
        assert not _is_markup(body)


@pytest.mark.parametrize("kind", ["application/pdf", "image/png", "application/octet-stream", "video/mp4", "nonsense"])
def test_other_kinds_are_refused(kind):
    with pytest.raises(FetchError, match=kind):
        page("x", kind)


def test_binary_data_that_claims_to_be_text():
    with pytest.raises(FetchError, match="it is no text"):
        page(b"\x89PNG\r\n\0\0\0", "text/plain")


@pytest.mark.parametrize(("status", "says"), [(404, "404 .there is no such page"), (418, "418"), (304, "304")])
def test_no_page_without_success(status, says):
    with pytest.raises(FetchError, match=says):
        page("x", status=status)


@pytest.mark.parametrize(
    ("body", "header", "text"),
    [
        ("grün".encode(), "text/html; charset=utf-8", "grün"),
        ("grün".encode("latin-1"), "text/html; charset=ISO-8859-1", "grün"),
        ("“grün”".encode("cp1252"), "text/html; charset=iso-8859-1", "“grün”"),
        ("“grün”".encode("cp1252"), 'text/html; charset="us-ascii"', "“grün”"),
        ("日本".encode("shift-jis"), "text/html; charset=Shift_JIS", "日本"),
        ("日本".encode("euc-jp"), "text/html;CHARSET = euc-jp ; x=y", "日本"),
        ("鎔".encode("gb18030"), "text/html; charset=gb2312", "鎔"),
        (codecs.BOM_UTF8 + "grün".encode(), "text/html; charset=latin-1", "grün"),
        (codecs.BOM_UTF16_LE + "grün".encode("utf-16-le"), "text/html", "grün"),
        (codecs.BOM_UTF16_BE + "grün".encode("utf-16-be"), "text/plain", "grün"),
        ('<meta charset="windows-1251">Привет'.encode("cp1251"), "text/html", '<meta charset="windows-1251">Привет'),
        ("<meta charset=utf-16>grün".encode(), "text/html", "<meta charset=utf-16>grün"),
        ("<?xml encoding='iso-8859-2'?>ł".encode("iso-8859-2"), "", "<?xml encoding='iso-8859-2'?>ł"),
        ("grün".encode(), "text/html", "grün"),
        ("grün".encode(), "text/html; charset=nonsense", "grün"),
        ("grün".encode(), "text/html; charset=base64", "grün"),
        ("grün".encode(), "text/html; charset=idna", "grün"),
        ("grün".encode(), "text/html; charset=utf-7", "grün"),
        ("grün".encode(), "text/html; charset=punycode", "grün"),
        (rb"gr\u00fcn", "text/html; charset=unicode_escape", r"gr\u00fcn"),
        ("ﾃｽﾄ①".encode("cp932"), "text/html; charset=shift_jis", "ﾃｽﾄ①"),
        ("grün".encode("utf-16-le"), "text/html; charset=utf-16", "grün"),
        ("grün".encode()[:-1] + "ü".encode()[:1], "text/plain", "grü�"),
        (b"a\xff", "text/html; charset=utf-8", "a�"),
        (b"", "text/html", ""),
    ],
)  # fmt: skip
def test_character_sets(body, header, text):
    assert decode(body, header) == text


@pytest.mark.parametrize("label", sorted(_KNOWN))
def test_every_known_character_set_is_one_of_python(label):
    assert codecs.lookup(label).name == label or label == "big5hkscs"
    assert decode(b"plain", f"text/html; charset={label}") == b"plain".decode(label, "replace")


def test_a_character_set_is_guessed():
    text = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 20
    assert decode(text.encode("cp1251"), "text/plain") == text


@given(st.binary(max_size=300), st.text(max_size=40))
def test_decoding_never_fails(body, header):
    assert isinstance(decode(body, header), str)


@given(st.text(alphabet="ab \n", max_size=400), st.integers(1, 50))
def test_parts_hold_every_word_within_their_size(text, size):
    parts = split(text, size)
    assert all(len(part) <= size for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(parts[:-1])


def test_parts_are_cut_between_paragraphs_then_lines_then_words():
    assert split("aaaa\n\nbb\ncc\n\ndd", 12) == ["aaaa\n\nbb\ncc", "dd"]
    assert split("aaaa bbbb\ncc dd", 12) == ["aaaa bbbb", "cc dd"]
    assert split("aaaa bbbb cc", 10) == ["aaaa bbbb", "cc"]
    assert split("a" * 25, 10) == ["a" * 10, "a" * 10, "a" * 5]
    assert split("", 10) == [""]


def test_a_page_that_was_read_is_remembered():
    reader = PageReader(size=2)
    replies = [Reply(f"https://x/{n}", 200, "text/plain", b"x") for n in range(3)]
    first = reader.read(replies[0])
    assert reader.read(Reply("https://x/0", 200, "text/plain", b"x")) is first
    assert reader.read(Reply("https://x/0", 200, "text/plain", b"y")) is not first
    for reply in replies:
        reader.read(reply)
    assert reader.read(replies[0]) is not first
    assert reader.read(replies[0]) == first
