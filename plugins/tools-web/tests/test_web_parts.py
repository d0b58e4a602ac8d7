"""Addresses, decompression, robots.txt, recording."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest
from agentfly_tools_web.browse import fetch_page
from agentfly_tools_web.fetching import FetchError, Reply, Request, WebClient
from agentfly_tools_web.fetching.addresses import allows, is_public
from agentfly_tools_web.fetching.decoding import Decoder
from agentfly_tools_web.fetching.pacing import Pacer
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.types import ResourceError, ToolContext, UsageError


def get(client, url, **more):
    return asyncio.run(client.fetch(Request(url, **more)))


def failure(client, url, **more):
    with pytest.raises(FetchError) as caught:
        get(client, url, **more)
    return str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8", "93.184.216.34", "172.15.0.1", "172.32.0.1", "192.167.1.1", "100.63.0.1",
        "2606:4700::1111", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "2002:808:808::1",
    ],
)  # fmt: skip
def test_public_addresses(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.255.255", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
        "0.0.0.0", "0.1.2.3", "100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
        "192.88.99.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::7f00:1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1",
        "2001::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::",
        "100::1", "localhost", "127.1", "2130706433", "", "8.8.8.8 ",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address):
    assert not is_public(address)


def test_which_hosts_a_list_names():
    assert allows(["Wiki.Internal"], "wiki.internal.", 80)
    assert allows(["wiki.internal:8080"], "WIKI.internal", 8080)
    assert allows(["::1", "x"], "::1", 80)
    assert allows(["[::1]:80"], "::1", 80)
    assert not allows(["wiki.internal:8080"], "wiki.internal", 80)
    assert not allows(["internal", "a.wiki.internal"], "wiki.internal", 80)
    assert not allows([], "localhost", 80)


@given(
    st.binary(max_size=3000),
    st.lists(st.integers(1, 50), min_size=1, max_size=8),
    st.sampled_from(["gzip", "deflate", "raw", ""]),
)
@settings(deadline=None)
def test_any_cut_of_a_compressed_body_gives_the_body(body, sizes, how):
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "raw": lambda b: zlib.compress(b)[2:-4], "": bytes}[how](
        body
    )
    decoder = Decoder("deflate" if how == "raw" else how, len(body))
    at = 0
    while at < len(packed):
        size = sizes[at % len(sizes)]
        if how == "raw" and at == 0:
            size = max(size, 2)  # one byte does not tell raw data from data with a header
        decoder.feed(packed[at : at + size])
        at += size
    assert decoder.finish() == body


@given(st.integers(0, 999))
@settings(deadline=None)
def test_never_more_than_the_limit_is_made(limit):
    decoder = Decoder("gzip", limit)
    with pytest.raises(FetchError, match="larger than"):
        decoder.feed(gzip.compress(bytes(1000)))
    assert decoder._size <= limit + 1


def test_a_pace_of_its_own_for_each_host():
    async def main():
        pacer = Pacer(100.0)
        assert await pacer.wait("a", at_most=0.0)
        assert await pacer.wait("b", at_most=0.0)
        assert not await pacer.wait("a", at_most=50.0)
        pacer.hold("c", 60.0)
        assert not await pacer.wait("c", at_most=50.0)

    asyncio.run(main())


# --- robots.txt ------------------------------------------------------------------------------------------------------

RULES = """
User-agent: *
Disallow: /private/
Allow: /private/but
Disallow: /*.pdf$

User-agent: greedy
Disallow: /
"""


def test_a_site_s_rules_are_asked_for_once_and_obeyed(site):
    site.page("/robots.txt", RULES, "text/plain")
    for path in ("/a", "/private/a", "/private/but", "/x.pdf"):
        site.page(path, "x")
    client = site.client(robots=True)
    assert get(client, site.url("/a")).status == 200
    assert get(client, site.url("/private/but")).status == 200
    assert "does not allow" in failure(client, site.url("/private/a"))
    assert "does not allow" in failure(client, site.url("/x.pdf"))
    assert site.paths() == ["/robots.txt", "/a", "/private/but"]
    assert "does not allow" in failure(site.client(robots=True, user_agent="Greedy"), site.url("/a"))
    assert get(site.client(robots=False, user_agent="greedy"), site.url("/a")).status == 200
    assert get(site.client(robots=True, user_agent="greedy"), site.url("/a"), api=True).status == 200


def test_the_rules_hold_after_a_redirect(site, lead):
    site.page("/robots.txt", RULES, "text/plain")
    site.pages["/a"] = lead("/private/a")
    assert "does not allow" in failure(site.client(robots=True), site.url("/a"))
    assert site.paths() == ["/robots.txt", "/a"]


def test_without_rules_all_is_allowed(site):
    site.page("/a", "x")
    assert get(site.client(robots=True), site.url("/a")).status == 200
    assert get(site.client(robots=True), site.url("/robots.txt")).status == 404


def test_rules_that_cannot_be_had_allow_nothing(site, say):
    site.page("/a", "x")
    site.pages["/robots.txt"] = say(b"", "500 Oops")
    client = site.client(robots=True, retries=0)
    for _ in range(3):
        assert "robots.txt) cannot be read" in failure(client, site.url("/a"))
    assert site.paths() == ["/robots.txt"]  # and are not asked for each time


def test_a_site_may_ask_for_a_slower_pace(site):
    site.page("/robots.txt", "User-agent: *\nCrawl-delay: 9", "text/plain")
    site.page("/a", "x")
    site.page("/b", "x")
    client = site.client(robots=True, timeout=5)
    assert get(client, site.url("/a")).status == 200
    assert "too many requests" in failure(client, site.url("/b"))


# --- recording -------------------------------------------------------------------------------------------------------


def test_what_was_recorded_is_replayed_without_a_network(site, tmp_path, lead):
    site.page("/a", b"\x00\n\xff", "application/octet-stream")
    site.pages["/b"] = lead("/a")
    site.pages["/c"] = lead("ftp://x/")
    folder = tmp_path / "web"
    recorder = site.client(cache=folder, mode="record", robots=True)
    results = [get(recorder, site.url("/a")), get(recorder, site.url("/b"))]
    says = failure(recorder, site.url("/c"))
    assert get(recorder, site.url("/none")).status == 404
    made = len(site.asked)
    assert get(recorder, site.url("/a")) == results[0]
    assert len(site.asked) == made
    replayer = WebClient(cache=folder, mode="replay")  # its own options: nothing is checked or asked again
    site.pages.clear()
    assert [get(replayer, site.url("/a")), get(replayer, site.url("/b") + "#x")] == results
    assert results[1] == Reply(site.url("/a"), 200, "application/octet-stream", b"\x00\n\xff")
    assert failure(replayer, site.url("/c")) == says
    assert get(replayer, site.url("/none")).status == 404
    assert "not in the recording" in failure(replayer, site.url("/new"))
    assert len(site.asked) == made


def test_what_may_pass_is_asked_for_again_while_recording(site, tmp_path, say):
    site.pages |= {"/a": b"", "/b": say(b"", "503 Busy")}
    recorder = site.client(cache=tmp_path, mode="record", retries=0)
    assert "cannot be read" in failure(recorder, site.url("/a"))
    assert get(recorder, site.url("/b")).status == 503
    assert "cannot be read" in failure(WebClient(cache=tmp_path, mode="replay"), site.url("/a"))
    site.page("/a", "now")
    site.page("/b", "now")
    assert [get(recorder, site.url(p)).body for p in ("/a", "/b")] == [b"now", b"now"]
    assert get(WebClient(cache=tmp_path, mode="replay"), site.url("/a")).body == b"now"


def test_requests_with_a_body_are_told_apart_and_secrets_stay_out(site, tmp_path):
    async def echo(asked, writer):
        body = asked.body + asked.headers["x-api-key"].encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    site.pages["/s"] = echo
    recorder = site.client(cache=tmp_path, mode="record")
    headers = {"X-API-KEY": "hunter2"}
    assert get(recorder, site.url("/s"), headers=headers, body='{"q": 1}').body == b'{"q": 1}hunter2'
    assert get(recorder, site.url("/s"), headers=headers, body='{"q": 2}').body == b'{"q": 2}hunter2'
    assert [a.method for a in site.asked] == ["POST", "POST"]
    heads = [gzip.decompress(p.read_bytes()).partition(b"\n")[0] for p in tmp_path.rglob("*.gz")]
    assert len(heads) == 2
    assert not any(b"hunter2" in head for head in heads)


def test_live_leaves_no_trace(site, tmp_path):
    site.page("/a", "x")
    client = site.client(cache=tmp_path, mode="live")
    get(client, site.url("/a"))
    get(client, site.url("/a"))
    assert len(site.asked) == 2
    assert list(tmp_path.iterdir()) == []


def test_recordings_are_the_same_bytes_every_time(site, tmp_path):
    site.page("/a", "x")
    for name in "ab":
        get(site.client(cache=tmp_path / name, mode="record"), site.url("/a"))
    one, two = ([p.read_bytes() for p in (tmp_path / name).rglob("*.gz")] for name in "ab")
    assert one == two
    assert len(one) == 1


def test_a_damaged_recording_says_which_file(site, tmp_path):
    site.page("/a", "x")
    client = site.client(cache=tmp_path, mode="record")
    get(client, site.url("/a"))
    (path,) = tmp_path.rglob("*.gz")
    for damage in (b"", b"abc", path.read_bytes()[:20], gzip.compress(b"[]\nx"), gzip.compress(b"{}\n")):
        path.write_bytes(damage)
        with pytest.raises(ResourceError, match=path.name):
            get(client, site.url("/a"))


@pytest.mark.parametrize("where", ["file", "file/inside", "/proc/none"])
def test_a_recording_that_cannot_be_made_is_refused_at_once(site, tmp_path, where):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written: "):
        site.client(cache=tmp_path / where, mode="record")


def test_a_recording_that_fails_later_is_no_answer_for_the_model(site, tmp_path):
    folder = tmp_path / "recording"
    tool = fetch_page.configured(http=site.options(), cache=folder, mode="record")
    folder.rmdir()
    folder.touch()
    with pytest.raises(ResourceError, match=r"cannot be (read|written)"):
        asyncio.run(tool.call({"url": site.page("/a", "x")}, ToolContext()))


def test_endless_rules_are_asked_for_once(site):
    site.page("/robots.txt", "Disallow: /x\n" * 2000, "text/plain")
    for name in ("/a", "/b"):
        site.page(name, "x")
    client = site.client(robots=True, max_bytes=10_000)
    for name in ("/a", "/b"):
        assert "the rules of 127.0.0.1 (robots.txt) cannot be read" in failure(client, site.url(name))
    assert site.paths() == ["/robots.txt"]


def test_a_mode_needs_its_folder(tmp_path):
    with pytest.raises(UsageError, match="needs the option 'cache'"):
        WebClient(mode="record")
    with pytest.raises(UsageError, match="there is no recording"):
        WebClient(mode="replay", cache=tmp_path / "none")
