"""The code agent in the real engine, over real sessions."""

from __future__ import annotations

from typing import Any

import pytest
from agentfly_tools_code import CodeAgent
from agentfly_tools_code.fences import blocks, python_blocks, unfence
from agentfly_tools_code.interpreter import CodeInterpreter, code_interpreter
from agentfly_tools_code.shell import shell
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.resources import ResourceManager
from agentfly_core.testing import play
from agentfly_core.types import ChainStatus, SamplingParams, Task, Trajectory, UsageError

LONG = SamplingParams(max_tokens=200_000)


def chain(resources: ResourceManager, *turns: Any, **options: Any) -> Trajectory:
    options = {"agent": CodeAgent(), "tools": [code_interpreter], "sampling": LONG, **options}
    return play(turns, resources=resources, timeout=240.0, **options)


def test_code_runs_in_one_session_and_text_without_code_is_the_answer(resources: ResourceManager) -> None:
    played = chain(
        resources, "First:\n```python\nx = 6\n```\nand\n```py\nx * 7\n```", "```\nprint(x)\nx + 1\n```", "It is 42."
    )
    assert [m["content"] for m in played.messages if m["role"] == "user"] == [
        "Go.",
        "```output\n42\n```\n",
        "```output\n6\n7\n```\n",
    ]
    assert (played.status, played.response) == (ChainStatus.COMPLETED, "It is 42.")


def test_the_opening_explains_the_notation_and_lists_no_tools(resources: ResourceManager) -> None:
    played = chain(resources, "Done.")
    assert [m["role"] for m in played.messages] == ["system", "user", "assistant"]
    assert "```python" in str(played.messages[0]["content"])
    assert chain(resources, "Done.", agent=CodeAgent(system_prompt="")).messages[0]["role"] == "user"
    own = Task("t", ({"role": "system", "content": "Mine."}, {"role": "user", "content": "Go."}))
    assert chain(resources, "Done.", task=own).messages[0]["content"] == "Mine."


def test_an_error_is_shown_and_the_chain_goes_on(resources: ResourceManager) -> None:
    played = chain(resources, "```python\n1 / 0\n```", "Too bad.")
    assert "ZeroDivisionError: division by zero\n```" in str(played.messages[3]["content"])
    assert played.status is ChainStatus.COMPLETED


def test_a_block_that_is_not_closed_is_a_hint_and_a_cut_one_ends_the_chain(resources: ResourceManager) -> None:
    played = chain(resources, "```python\n1 + 1", "```python\n1 + 1\n```", "2")
    assert "not closed" in str(played.messages[3]["content"])
    assert played.response == "2"
    cut = chain(resources, "```python\nprint(1)\nprint(2)\n```", sampling=SamplingParams(max_tokens=20))
    assert cut.status is ChainStatus.MAX_TOKENS


def test_other_languages_are_text(resources: ResourceManager) -> None:
    played = chain(resources, "```json\n{}\n```")
    assert (played.status, played.response) == (ChainStatus.COMPLETED, "```json\n{}\n```")


def test_it_can_go_on_within_its_message(resources: ResourceManager) -> None:
    played = chain(
        resources,
        "Let me see.\n```python\n6 * 7\n```\nnever sampled",
        "So it is 42.",
        agent=CodeAgent(continues=True),
    )
    (segment,) = played.segments
    text = "".join(chr(i - 8) if i >= 8 else "|" for i in segment.token_ids[segment.prompt_len :])
    assert text == "Let me see.\n```python\n6 * 7\n```\n```output\n42\n```\nSo it is 42.|"
    sampled = "".join(t for t, m in zip(text, segment.action_mask[segment.prompt_len :], strict=True) if m)
    assert sampled == "Let me see.\n```python\n6 * 7\n```\nSo it is 42.|"
    assert played.response == "So it is 42."


def test_figures_reach_a_model_that_sees(resources: ResourceManager) -> None:
    found = chain(resources, "```python\nimport matplotlib\n```", "Done.", tools=[CodeInterpreter(timeout=120.0)])
    if "ModuleNotFoundError" in str(found.messages[3]["content"]):
        pytest.skip("the sandbox's Python has no matplotlib")
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.figure(); plt.plot([3])\nprint('drawn')"
    turns = (f"```python\n{code}\n```", "Done.")
    blind = chain(resources, *turns, tools=[CodeInterpreter(timeout=120.0)])
    notes = "drawn\n[the figure is in figure-1.png]\n[the figure is in figure-2.png]\n```\n"
    assert str(blind.messages[3]["content"]).endswith(notes)  # fonts may be looked for first, which is told
    seeing = chain(resources, *turns, tools=[CodeInterpreter(timeout=120.0, images=True)])
    text, *images = seeing.turns[0].outcomes[0].content
    assert text["type"] == "text"
    assert text["text"].endswith("drawn")
    assert [part["image"][:8] for part in images] == [b"\x89PNG\r\n\x1a\n"] * 2  # type: ignore[typeddict-item]


@pytest.mark.parametrize("tools", [[], [shell], [code_interpreter, shell]])
def test_tools_that_it_cannot_use_are_refused(resources: ResourceManager, tools: list[Any]) -> None:
    with pytest.raises(UsageError, match=r"write `tools: \[code_interpreter\]`"):
        chain(resources, "Done.", tools=tools)


def test_blocks_are_found_as_markdown_has_them() -> None:
    text = (
        "a\n```python title=x\n1\n```\n~~~~\n```\n2\n~~~~\n  ```PY\n3\n  ```\n```sql\n4\n```\n`inline`\n```python\nopen"
    )
    assert blocks(text) == [
        ("python", "1\n", True),
        ("", "```\n2\n", True),
        ("py", "3\n", True),
        ("sql", "4\n", True),
        ("python", "open", False),
    ]
    assert python_blocks(text) == ["1\n", "```\n2\n", "3\n"]


def test_only_a_fence_around_everything_is_taken_off() -> None:
    assert unfence("```python\nx\n```") == "x\n"
    assert unfence("\n```\nx\n```\n") == "x\n"
    for kept in ("x", "'''```'''", "```python\nx", "```python\nx\n```\ny", "```sql\nx\n```"):
        assert unfence(kept) == kept


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="`~pyt\n a", max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    for _, code, _ in blocks(text):
        assert code in text
    assert isinstance(unfence(text), str)
