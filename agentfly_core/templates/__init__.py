"""Chat templates: messages to token ids, sampled ids to parsed turns."""

from agentfly_core.templates.base import Format, TextTemplate
from agentfly_core.templates.codec import Rendered, TextCodec
from agentfly_core.templates.hermes import parse_hermes
from agentfly_core.templates.loading import load_tokenizer
from agentfly_core.templates.messages import raw_message, to_json

__all__ = [
    "Format",
    "Rendered",
    "TextCodec",
    "TextTemplate",
    "load_tokenizer",
    "parse_hermes",
    "raw_message",
    "to_json",
]
