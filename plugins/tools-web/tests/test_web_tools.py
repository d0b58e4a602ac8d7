"""The tools as a model uses them."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import parse_qs, urlsplit

import pytest
from agentfly_tools_web.browse import fetch_page, find_in_page
from agentfly_tools_web.providers import SearchResult
from agentfly_tools_web.retrieval import build_index
from agentfly_tools_web.search import web_search

from agentfly_core.plugins import Plugins
from agentfly_core.recipes.assemble import build_tool
from agentfly_core.testing import check_plugin, check_tool
from agentfly_core.types import ToolContext, ToolStatus, UsageError

LONG = "\n\n".join(f"Paragraph {n} about number {n}. " + "Filling. " * 20 for n in range(40))


def call(tool, context=None, **arguments):
    return asyncio.run(tool.call(arguments, context or ToolContext()))


def made(tool, site, **options):
    http = {"allow_hosts": (site.host,), "requests_per_second": 1e6, "robots": False, **options.pop("http", {})}
    return tool.configured(http=site.options(**http), **options)


@pytest.fixture
def index(tmp_path):
    rows = [
        {"title": "Otter", "text": "The otter swims in rivers and eats fish."},
        {"title": "Badger", "text": "The badger digs.", "url": "https://example.org/badger"},
    ]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, rows)))
    return build_index(corpus, tmp_path / "index").folder


def test_the_plugin_and_its_tools_keep_their_contracts(site, index):
    check_plugin("web")
    url = site.page("/a", "<html><title>Otters</title><body><p>They swim.</p></body></html>")
    check_tool(made(fetch_page, site), calls=[{"url": url}, {"url": url, "page": 1, "links": True}])
    check_tool(made(find_in_page, site), calls=[{"url": url, "text": "swim"}])
    plugins = Plugins.load(warn=False)
    for name in ("retrieve", "web_search"):
        options = {"index": str(index), **({"provider": "local"} if name == "web_search" else {})}
        tool = build_tool(name, options, plugins, index.parent)
        check_tool(tool, calls=[{"query": "otter"}, {"query": "otter", "k": 1}])


def test_a_page(site):
    url = site.page("/a", "<html><title>Otters</title><body><p>They swim.</p><a href=/b>more</a></body></html>")
    outcome = call(made(fetch_page, site), url=url, links=True)
    assert outcome.status is ToolStatus.OK
    assert outcome.content == f"Title: Otters\nURL: {url}\n\nThey swim.\n\nmore\n\nLinks:\n- more: {site.url('/b')}"
    assert call(made(fetch_page, site), url=site.page("/t", "x", "text/plain"), links=True).content.endswith(
        "\n\nx\n\nThe page has no links."
    )
    assert "(The page has no text.)" in call(made(fetch_page, site), url=site.page("/e", "")).content


def test_a_long_page_comes_in_parts_and_is_fetched_once(site):
    url = site.page("/a", LONG, "text/plain")
    tool, context = made(fetch_page, site, page_chars=1000), ToolContext()
    first = call(tool, context, url=url).content
    assert "Part 1 of " in first
    count = int(first.split("Part 1 of ")[1].split()[0])
    rest = [call(tool, context, url=url, page=n).content for n in range(2, count + 1)]
    bodies = [part.split("\n\n", 1)[1] for part in (first, *rest)]
    assert "".join("".join(bodies).split()) == "".join(LONG.split())
    assert all(len(body) <= 1000 for body in bodies)
    beyond = call(tool, context, url=url, page=count + 1)
    assert (beyond.status, beyond.content) == (ToolStatus.FAILED, f"Error: the page has only {count} parts.")
    assert call(tool, context, url=url, page=0).status is ToolStatus.INVALID_ARGUMENTS
    assert len(site.asked) == 1
    found = call(made(find_in_page, site, page_chars=1000), context, url=url, text="NUMBER  17").content
    assert found.startswith("1. (part ")
    assert "Paragraph 17 about number 17." in found
    assert len(site.asked) == 1


def test_a_chain_s_page_stays_as_it_was(site):
    url = site.page("/a", "first", "text/plain")
    tool, mine = made(fetch_page, site), ToolContext()
    assert "first" in call(tool, mine, url=url).content
    site.page("/a", "second", "text/plain")
    assert "first" in call(tool, mine, url=url).content
    assert "second" in call(tool, ToolContext(), url=url).content


def test_a_failure_is_said_in_words(site):
    outcome = call(made(fetch_page, site), url=site.url("/none"))
    assert outcome.status is ToolStatus.FAILED
    assert outcome.content == (
        f"Error: {site.url('/none')} could not be read: the server answers with status 404 (there is no such page)."
    )
    refused = call(fetch_page, url=site.url("/none"))  # as registered: without any option
    assert "is at the private address 127.0.0.1: not allowed" in refused.content
    assert "private address" in call(find_in_page, url=site.url("/none"), text="x").content


def test_finding(site):
    url = site.page("/a", "one two\n" + "x (a+b)* y\n" * 12, "text/plain")
    tool = made(find_in_page, site)
    assert call(tool, url=url, text="ONE\nTwo").content.startswith("1. ...one two")
    many = call(tool, url=url, text="(A+B)*").content
    assert many.endswith("(2 more not shown)")
    assert call(tool, url=url, text="(.*").content == "'(.*' does not stand in the page."
    assert call(tool, url=url, text="").status is ToolStatus.INVALID_ARGUMENTS
    assert call(tool, url=url, text=" ").status is ToolStatus.OK


def test_documents_of_the_local_index(index):
    tool = fetch_page.configured(index=index)
    assert call(tool, url="doc:0").content == "Title: Otter\nURL: doc:0\n\nThe otter swims in rivers and eats fish."
    for wrong in (
        "doc:2",
        "doc:-1",
        "doc:",
        "doc:x",
        "doc:\u0661",
        "doc:" + "9" * 30,
        "doc:" + "0" * 5000,
        "doc:" + "0" * 18 + "9",
    ):
        assert "there is no such document" in call(tool, url=wrong).content
    assert "there is no such document" in call(fetch_page, url="doc:0").content


# --- searching -------------------------------------------------------------------------------------------------------


def test_the_local_index_searches(index):
    tool = web_search.configured(provider="local", index=index)
    assert call(tool, query="who eats fish").content == "[1] Otter\ndoc:0\nThe otter swims in rivers and eats fish."
    assert call(tool, query="badger").content == "[1] Badger\nhttps://example.org/badger\nThe badger digs."
    assert call(tool, query="zebra").content == "Nothing was found. Try other words."
    assert call(tool, query=" ").content == "Error: the query is empty."
    assert call(tool, query="x", k=21).status is ToolStatus.INVALID_ARGUMENTS


def searx(results):
    async def handler(asked, writer):
        query = parse_qs(urlsplit(asked.path).query)
        assert query["format"] == ["json"]
        body = json.dumps({"query": query["q"][0], "results": results(query["q"][0])}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    return handler


def test_searxng(site):
    site.pages["/search?q=gr%C3%BCn+%26+%22x%22&format=json"] = searx(
        lambda q: [
            {"title": f"about {q}", "url": f"https://example.org/{n}", "content": "a <b>b</b> c"} for n in range(9)
        ]
    )
    tool = made(web_search, site, provider="searxng", url=site.url("/"), http={"allow_hosts": ()})
    content = call(tool, query='grün & "x"', k=2).content
    assert content == "\n\n".join(f'[{n + 1}] about grün & "x"\nhttps://example.org/{n}\na b c' for n in range(2))


def test_serper(site, monkeypatch, tmp_path):
    async def handler(asked, writer):
        assert (asked.method, asked.headers["x-api-key"]) == ("POST", "sesame")
        sent = json.loads(asked.body)
        rows = [{"title": sent["q"], "link": "https://example.org/1", "snippet": f"one of {sent['num']}"}]
        body = json.dumps({"organic": rows}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    site.pages["/search"] = handler
    monkeypatch.setenv("MY_KEY", "sesame")
    options = {"provider": "serper", "url": site.url("/search"), "key_variable": "MY_KEY", "cache": tmp_path}
    shown = "[1] otters\nhttps://example.org/1\none of 3"
    assert call(made(web_search, site, mode="record", **options), query="otters", k=3).content == shown
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(UsageError, match="environment variable MY_KEY"):
        made(web_search, site, mode="record", **options)
    assert call(made(web_search, site, mode="replay", **options), query="otters", k=3).content == shown
    assert len(site.asked) == 1


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        ("200 OK", "not json", "does not answer with JSON"),
        ("200 OK", "[" * 100_000, "does not answer with JSON"),
        ("200 OK", "[1]", "does not answer with an object"),
        ("401 No", "{}", "its key or settings are wrong"),
        ("500 No", "{}", "status 500"),
        ("200 OK", "{}", "something else than a list"),
        ("200 OK", '{"results": {"a": 1}}', "something else than a list"),
        ("200 OK", '{"results": [1, null, {"url": 3}, {"title": "x"}]}', "Nothing was found"),
        ("200 OK", '{"results": [{"url": "https://x/", "title": 7, "content": null}]}', "[1] \nhttps://x/"),
    ],
)
def test_odd_answers_of_a_search_service(site, say, status, body, says):
    site.pages["/search?q=a&format=json"] = say(body.encode(), status)
    tool = made(web_search, site, provider="searxng", url=site.url(""), http={"retries": 0})
    assert says in call(tool, query="a").content


def own_provider(url, index, key_variable):
    async def search(query, k, client):
        return [SearchResult(f"{query} {n}", f"https://example.org/{n}", "y" * 1000) for n in range(k + 5)]

    return search


def test_a_provider_of_one_s_own(monkeypatch, tmp_path):
    tool = web_search.configured(provider=f"{__file__}:own_provider", k=2)
    content = call(tool, query="q").content
    assert content.count("https://example.org/") == 2
    assert len(content) < 1000


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("web_search", {}, "tool 'web_search' needs the option 'provider'"),
        ("web_search", {"provider": "serpr"}, "unknown search provider 'serpr'; did you mean 'serper'"),
        ("web_search", {"provider": "local"}, "the provider 'local' needs the option 'index'"),
        ("web_search", {"provider": "local", "index": "none"}, "there is no index in .*agentfly index build"),
        ("web_search", {"provider": "searxng"}, "needs the option 'url'"),
        ("web_search", {"provider": "searxng", "url": "localhost"}, "must begin with http"),
        ("web_search", {"provider": "serper"}, "SERPER_API_KEY"),
        ("web_search", {"provider": "no.such:thing"}, "no.such"),
        ("web_search", {"provider": "searxng", "url": "http://x", "k": 0}, "k must be from 1 to 20"),
        ("retrieve", {}, "tool 'retrieve' needs the option 'index'"),
        ("retrieve", {"index": "none"}, "there is no index in .*none"),
        ("fetch_page", {"http": {"timeout": -1}}, "option 'http.timeout' of tool 'fetch_page': must be greater than 0"),
        ("fetch_page", {"http": {"robot": True}}, "option 'http.robot' of tool 'fetch_page': unknown"),
        ("fetch_page", {"http": {"user_agent": "a\nb"}}, "option 'http.user_agent'"),
        ("fetch_page", {"mode": "repaly"}, "option 'mode' of tool 'fetch_page'"),
        ("fetch_page", {"mode": "record"}, "needs the option 'cache'"),
        ("fetch_page", {"page_chars": 5}, "page_chars must be at least 100"),
    ],
)
def test_wrong_options(name, options, says, tmp_path, monkeypatch):
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    with pytest.raises(UsageError, match=says):
        build_tool(name, options, Plugins.load(warn=False), tmp_path)


def test_options_as_a_recipe_writes_them(site, tmp_path):
    url = site.page("/a", "inside", "text/plain")
    options = {"cache": "web", "mode": "record", "http": {"allow_hosts": [site.host], "robots": False, "timeout": 20}}
    tool = build_tool("fetch_page", options, Plugins.load(warn=False), tmp_path)
    assert "inside" in call(tool, url=url).content
    assert len(list((tmp_path / "web").rglob("*.gz"))) == 1
