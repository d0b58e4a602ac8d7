"""The client against a server that misbehaves."""

from __future__ import annotations

import asyncio
import gzip
import queue
import socket
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from agentfly_tools_web.fetching import FetchError, Reply, Request, exchange


def get(client, url, **more):
    return asyncio.run(client.fetch(Request(url, **more)))


def failure(client, url, **more):
    with pytest.raises(FetchError) as caught:
        get(client, url, **more)
    return str(caught.value)


def test_a_page(site):
    url = site.page("/a", "hello")
    assert get(site.client(user_agent="tester/1"), f" {url}#part ") == Reply(
        url, 200, "text/html; charset=utf-8", b"hello"
    )
    (asked,) = site.asked
    assert (asked.method, asked.path, asked.headers["user-agent"]) == ("GET", "/a", "tester/1")
    assert asked.headers["accept-encoding"] == "gzip, deflate"
    assert "cookie" not in asked.headers


def test_a_missing_page_is_a_reply(site):
    assert get(site.client(), site.url("/nowhere")).status == 404


# --- addresses -------------------------------------------------------------------------------------------------------


def test_a_private_address_is_refused(site):
    site.page("/a", "secret")
    for host in ("127.0.0.1", "localhost", "0x7f.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0"):
        says = failure(site.client(allow_hosts=()), f"http://{host}:{site.port}/a")
        assert "private address" in says, host
    for host in ("2130706433", "127.1", "0177.0.0.1"):
        assert "is no name of a host" in failure(site.client(allow_hosts=()), f"http://{host}:{site.port}/a")
    assert site.asked == []


def test_only_the_host_that_is_allowed_is_allowed(site):
    site.page("/a", "inside")
    for allowed in ("127.0.0.1", site.host):
        assert get(site.client(allow_hosts=(allowed,)), site.url("/a")).body == b"inside"
    for allowed in ("localhost", "127.0.0.1:1", "27.0.0.1", "127.0.0.10", ""):
        assert "private address" in failure(site.client(allow_hosts=(allowed,)), site.url("/a"))
    assert len(site.asked) == 2


def test_a_redirect_to_a_private_address_is_refused(site, lead):
    site.page("/secret", "secret")
    for number, target in enumerate(
        (f"http://localhost:{site.port}/secret", "http://169.254.169.254/latest", "//[::1]/")
    ):
        site.pages[f"/{number}"] = lead(target)
        assert "private address" in failure(site.client(), site.url(f"/{number}"))
    assert "/secret" not in site.paths()


def test_the_address_that_was_checked_is_the_one_connected_to(site, monkeypatch):
    """A name that changes its address between check and use gains nothing: there is one look-up, and what it gave is
    what is connected to. 127.0.0.1 plays the public address here, 127.0.0.2 a private one."""
    answers = iter(["127.0.0.1", "127.0.0.2"])
    real = socket.getaddrinfo

    def rebinding(host, port, *args, **more):
        return real(next(answers) if host == "rebind.test" else host, port, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(exchange, "is_public", lambda address: address == "127.0.0.1")
    site.page("/a", "hello")
    url = f"http://rebind.test:{site.port}/a"
    assert get(site.client(allow_hosts=()), url).body == b"hello"
    assert "private address 127.0.0.2" in failure(site.client(allow_hosts=()), url)
    assert [asked.at for asked in site.asked] == ["127.0.0.1"]


def test_a_service_of_the_recipe_may_be_private_but_not_redirect_elsewhere(site, lead):
    site.page("/search", "{}")
    client = site.client(allow_hosts=())
    assert get(client, site.url("/search"), api=True).status == 200
    site.pages["/lost"] = lead(f"http://localhost:{site.port}/search")
    assert "private address" in failure(client, site.url("/lost"), api=True)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://example.org/", "must begin with http"),
        ("file:///etc/passwd", "must begin with http"),
        ("javascript:alert(1)", "is no web address"),
        ("http://", "is no web address"),
        ("", "is no web address"),
        ("http://a:b@example.org/", "user name or password"),
        ("http://user@example.org/", "user name or password"),
        ("http://example.org:99999/", "is no web address"),
        ("http://[::1/", "is no web address"),
        ("\x00", "is no"),
    ],
)
def test_what_is_no_address(site, url, says):
    assert says in failure(site.client(retries=0), url)


# --- redirects -------------------------------------------------------------------------------------------------------


def test_redirects_are_followed(site, lead, say):
    site.pages |= {
        "/1": lead("/2", "301 Moved"),
        "/2": lead(site.url("/d/3"), "308 Permanent"),
        "/d/3": lead("../4?x=1#y"),
    }
    site.page("/4?x=1", "there")
    reply = get(site.client(max_redirects=3), site.url("/1"))
    assert (reply.url, reply.body) == (site.url("/4?x=1"), b"there")


def test_endless_redirects_end(site, lead):
    site.pages |= {"/loop": lead("/loop2"), "/loop2": lead("/loop")}
    assert "more than 4 redirects" in failure(site.client(max_redirects=4), site.url("/loop"))
    assert len(site.asked) == 5


@pytest.mark.parametrize("to", ["ftp://example.org/", "file:///etc/passwd", "http://[", "javascript:1"])
def test_redirects_to_nowhere(site, lead, to):
    site.pages["/a"] = lead(to)
    assert "no" in failure(site.client(), site.url("/a"))
    assert len(site.asked) == 1


def test_a_redirect_without_place_is_a_reply(site, say):
    site.pages["/a"] = say(b"", "302 Found")
    assert get(site.client(), site.url("/a")).status == 302


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_server_that_never_answers(site):
    async def silent(asked, writer):
        await asyncio.sleep(3600)

    site.pages["/a"] = silent
    assert "not there after 0.3 s" in failure(site.client(timeout=0.3), site.url("/a"))


def test_a_server_that_answers_drop_by_drop(site):
    async def dripping(asked, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def dripping_head(asked, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-More: 1\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    site.pages |= {"/a": dripping, "/b": dripping_head}
    assert "not there after 0.5 s" in failure(site.client(timeout=0.5), site.url("/a"))
    assert site.ended.wait(30)  # the connection is not left open
    assert "not there after 0.5 s" in failure(site.client(timeout=0.5), site.url("/b"))


# --- size ------------------------------------------------------------------------------------------------------------


def test_an_endless_body(site):
    async def endless(asked, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    site.pages["/a"] = endless
    assert "larger than 100,000 bytes" in failure(site.client(max_bytes=100_000), site.url("/a"))
    assert site.ended.wait(30)
    assert len(site.asked) == 1  # trying again would not help


def test_a_body_that_says_how_large_it_is(site, say):
    site.pages["/a"] = say(b"x" * 1001)
    assert "larger than 1,000 bytes" in failure(site.client(max_bytes=1000), site.url("/a"))
    assert len(get(site.client(max_bytes=1001), site.url("/a")).body) == 1001


def test_a_bomb_is_not_unpacked(site, say):
    bomb = gzip.compress(b"\0" * 100_000_000)
    assert len(bomb) < 200_000
    site.pages["/a"] = say(bomb, "200 OK", "Content-Encoding: gzip")
    assert "larger than 1,000,000 bytes" in failure(site.client(max_bytes=1_000_000), site.url("/a"))
    site.pages["/b"] = say(gzip.compress(bomb), "200 OK", "Content-Encoding: gzip, gzip")
    assert "not understood" in failure(site.client(), site.url("/b"))


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("X-GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda body: zlib.compress(body)[2:-4]),
        ("gzip", lambda body: gzip.compress(body[:7]) + gzip.compress(body[7:])),
        ("identity", bytes),
    ],
)
def test_compressed_bodies(site, say, encoding, pack):
    body = "räum ".encode() * 5000
    site.pages["/a"] = say(pack(body), "200 OK", f"Content-Encoding: {encoding}")
    assert get(site.client(), site.url("/a")).body == body


# --- broken answers, retries -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nhe",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\n"
        + gzip.compress(b"x" * 99, mtime=0)[:12],
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc",
        b"this is no HTTP\r\n\r\n",
        b"\x16\x03\x01\x00\x00",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello and more",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\nabc",
    ],
    ids=lambda raw: f"answer {zlib.crc32(raw)}",
)
def test_a_broken_answer_is_asked_for_again_and_then_given_up(site, raw):
    site.pages["/a"] = raw
    assert failure(site.client(retries=2), site.url("/a"))
    assert len(site.asked) == 3


def test_a_connection_that_is_closed_without_a_word(site):
    site.pages["/a"] = b""
    assert "cannot be read" in failure(site.client(retries=2), site.url("/a"))
    assert len(site.asked) in (3, 6)  # aiohttp tries such a one twice itself


def test_a_port_where_nobody_listens(site):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    assert "cannot be reached" in failure(site.client(allow_hosts=(host,)), f"http://{host}/")


def test_https_where_there_is_none(site):
    site.page("/a", "x")
    assert "127.0.0.1" in failure(site.client(retries=0, connect_timeout=0.5), f"https://{site.host}/a")


def flaky(say, *answers):
    """One answer after the other."""
    remaining = iter(answers)

    async def handler(asked, writer):
        writer.write(next(remaining))

    return handler


def test_what_may_pass_is_tried_again(site, say):
    busy = say(b"busy", "503 Service Unavailable")
    site.pages["/a"] = flaky(say, busy, b"", say(b"done"))
    assert get(site.client(retries=2), site.url("/a")).body == b"done"
    site.pages["/b"] = flaky(say, busy, busy, say(b"never asked for"))
    assert get(site.client(retries=1), site.url("/b")).status == 503
    site.pages["/c"] = flaky(say, say(b"", "403 Forbidden"), say(b"never asked for"))
    assert get(site.client(retries=2), site.url("/c")).status == 403


def test_it_waits_as_long_as_the_server_asks(site, say):
    site.pages["/a"] = flaky(say, say(b"", "429 Too Many Requests", "Retry-After: 1"), say(b"done"))
    began = time.monotonic()
    assert get(site.client(), site.url("/a")).body == b"done"
    assert time.monotonic() - began >= 1.0


def test_it_does_not_wait_for_longer_than_it_has(site, say):
    for name, wait in (("/a", "3600"), ("/b", "Fri, 31 Dec 2199 23:59:59 GMT"), ("/c", "99999999999999999999")):
        site.pages[name] = say(b"", "429 Too Many Requests", f"Retry-After: {wait}")
        assert get(site.client(timeout=30), site.url(name)).status == 429
    assert len(site.asked) == 3


def test_others_wait_too_when_a_server_asks_one_to(site, say):
    site.pages["/a"] = say(b"", "503 Service Unavailable", "Retry-After: 3600")
    site.page("/b", "x")
    client = site.client()
    assert get(client, site.url("/a")).status == 503
    assert "has asked for a pause" in failure(client, site.url("/b"))
    assert site.paths() == ["/a"]


@pytest.mark.parametrize("wait", ["99999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_no_server_is_shut_out_for_ever(site, say, monkeypatch, wait):
    monkeypatch.setattr("agentfly_tools_web.fetching.client.LONGEST_PAUSE", 0.5)
    site.pages["/a"] = say(b"", "429 Too Many Requests", f"Retry-After: {wait}")
    site.page("/b", "x")
    client = site.client()
    assert get(client, site.url("/a")).status == 429
    assert get(client, site.url("/b")).body == b"x"


@pytest.mark.parametrize("wait", ["soon", "-1", "", "Mon, 99 Foo", "1e3", "\u0661"])
def test_an_odd_wait_is_no_wait(site, say, wait):
    odd = say(b"", "503 Busy", f"Retry-After: {wait.encode().decode('latin-1')}")
    site.pages["/a"] = flaky(say, odd, say(b"done"))
    assert get(site.client(), site.url("/a")).body == b"done"


# --- many chains -----------------------------------------------------------------------------------------------------


def test_requests_to_a_host_are_spaced(site):
    for n in range(5):
        site.page(f"/{n}", "x")
    client = site.client(requests_per_second=20)

    async def main():
        await asyncio.gather(*(client.fetch(Request(site.url(f"/{n}"))) for n in range(5)))

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began >= 4 / 20
    assert len(site.asked) == 5


def test_no_one_queues_for_longer_than_the_timeout(site):
    for n in range(3):
        site.page(f"/{n}", "x")
    client = site.client(requests_per_second=0.001, timeout=30)
    assert get(client, site.url("/0")).status == 200
    assert "too many requests to it are waiting" in failure(client, site.url("/1"))


def test_the_same_request_at_the_same_time_is_made_once(site, say):
    arrived, release = queue.Queue(), threading.Event()

    async def held(asked, writer):
        arrived.put(asked)
        await asyncio.to_thread(release.wait, 60)
        writer.write(say(b"done"))

    site.pages["/a"] = held
    client = site.client()

    async def main():
        tasks = [asyncio.create_task(client.fetch(Request(site.url("/a")))) for _ in range(8)]
        await asyncio.to_thread(arrived.get, timeout=60)
        tasks[0].cancel()  # the one that does the work: another takes over
        await asyncio.to_thread(arrived.get, timeout=60)
        tasks[7].cancel()  # one that only waits
        release.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())
    assert [type(r) for r in (results[0], results[7])] == [asyncio.CancelledError] * 2
    assert [r.body for r in results[1:7]] == [b"done"] * 6
    assert len(site.asked) == 2


def test_a_failure_is_shared_too(site):
    async def main():
        client = site.client(retries=0)
        return await asyncio.gather(*(client.fetch(Request(site.url("/a"))) for _ in range(4)), return_exceptions=True)

    site.pages["/a"] = b""
    assert [type(r) for r in asyncio.run(main())] == [FetchError] * 4


def test_a_client_serves_many_loops_at_once(site):
    for n in range(20):
        site.page(f"/{n}", str(n))
    client = site.client()
    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(lambda n: get(client, site.url(f"/{n}")).body, range(20)))
    assert bodies == [str(n).encode() for n in range(20)]
