"""The strings that the Qwen formats fix.

Source: the ``chat_template`` of the models' ``tokenizer_config.json`` (Qwen2.5-7B-Instruct, Qwen3-8B,
Qwen3-4B-Instruct-2507). The tests compare every rendering with those templates.
"""

from __future__ import annotations

import re

START = "<|im_start|>"
END = "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"
"""The other stop token of the models' generation config; the templates never write it."""

CALL_START = "<tool_call>"
CALL_END = "</tool_call>"
RESPONSE_START = "<tool_response>"
RESPONSE_END = "</tool_response>"
THINK_START = "<think>"
THINK_END = "</think>"

DEFAULT_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
"""What qwen2.5 puts where a conversation has no system message."""

TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
TOOLS_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    f'{CALL_START}{CALL_END} XML tags:\n{CALL_START}\n{{"name": <function-name>, "arguments": <args-json-object>}}\n'
    f"{CALL_END}"
)

GENERATION = f"{START}assistant\n"
NO_THINKING = f"{THINK_START}\n\n{THINK_END}\n\n"
"""The empty block with which qwen3's generation prompt switches thinking off."""

OWN_TAGS = re.compile(
    "(" + "|".join((CALL_START, CALL_END, RESPONSE_START, RESPONSE_END, THINK_START, THINK_END)) + ")"
)
"""What an assistant message may contain of the format's own."""
