"""The reference that the other tests trust renders as transformers does."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
utils = pytest.importorskip("transformers.utils.chat_template_utils")
pytestmark = pytest.mark.torch

CALL = {"type": "function", "function": {"name": "f", "arguments": {"b": "<é> & 'x'", "a": [1.5, None]}}}
MESSAGES = [
    {"role": "system", "content": "Be \u4e16 brief."},
    {"role": "user", "content": " hi\n"},
    {"role": "assistant", "content": "<think>\nx\n</think>\n\nOn it.", "tool_calls": [CALL]},
    {"role": "tool", "content": "1"},
    {"role": "tool", "content": "2"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "<b> é", "parameters": {"z": 1, "a": {}}}}]


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3", "qwen3-instruct-2507"])
@pytest.mark.parametrize("tools", [[], TOOLS])
@pytest.mark.parametrize("options", [{}, {"enable_thinking": False}])
def test_reference_is_transformers(name, tools, options, jinja_of, reference_of):
    for messages in (MESSAGES, MESSAGES[1:], MESSAGES[:2]):
        (expected,), _ = utils.render_jinja_template(
            [messages], tools=tools or None, chat_template=jinja_of(name), add_generation_prompt=True, **options
        )
        assert reference_of(name).render(messages, tools, **options) == expected
