"""Loading tokenizers, JSON as templates write it, the reference, and replaying conversations."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from agentfly_core.cli import cli
from agentfly_core.templates import load_tokenizer, raw_message, to_json
from agentfly_core.templates.reference import Reference
from agentfly_core.templates.replay import replay
from agentfly_core.types import Appended, AssistantTurn, NewSegment, TurnSpan, UsageError

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture
def folder(tmp_path):
    tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, [])).save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_load_from_a_folder_or_a_file(folder):
    for path in (folder, str(folder), folder / "tokenizer.json"):
        assert load_tokenizer(path).encode("aa").ids == [0, 0]


def test_load_says_what_is_wrong(tmp_path):
    with pytest.raises(UsageError, match=r"has no tokenizer\.json; save one there with"):
        load_tokenizer(tmp_path)
    with pytest.raises(UsageError, match=r"no tokenizer at .*none"):
        load_tokenizer(tmp_path / "none")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="is no tokenizer file"):
        load_tokenizer(tmp_path)


def test_to_json():
    value = {"b": "<é> & 'x'", "a": [1.0, None, True, 1e22]}
    assert to_json(value) == '{"b": "<é> & \'x\'", "a": [1.0, null, true, 1e+22]}'


def test_raw_message():
    assert raw_message("x") == {"role": "assistant", "content": "x"}


class TestReference:
    @pytest.fixture(autouse=True)
    def _jinja(self):
        pytest.importorskip("jinja2")

    def test_renders_as_hugging_face_does(self):
        source = (
            "{%- for m in messages %}\n  {{- m.content | tojson }}\n{%- endfor %}{{ bos_token }}{{ flag is defined }}"
        )
        reference = Reference(source, {"bos_token": "<s>"})
        assert reference.render([{"content": {"b": "<", "a": 1}}]) == '{"b": "<", "a": 1}<s>False'
        assert reference.render([], flag=1) == "<s>True"

    def test_tools_are_none_where_there_are_none(self):
        assert Reference("{{ tools is none }}").render([]) == "True"

    def test_where_it_comes_from(self, tmp_path):
        with pytest.raises(UsageError, match="has no chat template"):
            Reference.load(tmp_path)
        config = {
            "bos_token": {"content": "<s>"},
            "chat_template": [{"name": "default", "template": "A{{ bos_token }}"}],
        }
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        assert Reference.load(tmp_path).render([]) == "A<s>"
        (tmp_path / "chat_template.jinja").write_text("B{{ bos_token }}")
        assert Reference.load(tmp_path).render([]) == "B<s>"
        (tmp_path / "tokenizer_config.json").write_text("{")
        with pytest.raises(UsageError, match="is not valid JSON"):
            Reference.load(tmp_path)

    @pytest.mark.parametrize("source", ["{{ raise_exception('no') }}", "{{ messages[0].content + 1 }}", "{{ x.y }}"])
    def test_refusals_are_usage_errors(self, source):
        with pytest.raises(UsageError, match="refuses the messages"):
            Reference(source).render([{"content": "a"}])

    def test_broken_and_hostile_templates(self):
        with pytest.raises(UsageError, match="no valid Jinja"):
            Reference("{% if %}")
        with pytest.raises(UsageError, match="refuses the messages"):
            Reference("{{ messages.__class__.__mro__ }}").render([])


class Letters:
    """A template of one id a character; in template history a message '!' makes it rewrite."""

    name, history, stop_token_ids = "letters", "append", (ord("$"),)

    def encode_prompt(self, messages, tools=()):
        return [ord(c) for m in messages for c in m["content"]] + [ord(">")]

    def encode_reply(self, message):
        return [ord(c) for c in message["content"]] + [ord("$")]

    def encode_observation(self, messages, *, after):
        return self.encode_prompt(messages)

    def extend(self, history, observation, tools):
        assert history.messages[-1] == raw_message(history.last_raw)
        if any(m["content"] == "!" for m in observation):
            return NewSegment(self.encode_prompt([*history.messages, *observation]))
        return Appended(self.encode_prompt(observation))

    def parse(self, generation):
        return AssistantTurn(self.decode(generation.token_ids[:-1]))

    def decode(self, ids):
        return "".join(map(chr, ids))


def conversation(text):
    """Upper-case letters are the assistant's."""
    return [{"role": "assistant" if c.isupper() else "user", "content": c} for c in text]


def test_replay_in_one_segment():
    (segment,) = replay(Letters(), conversation("abXcdYe"))
    assert "".join(map(chr, segment.token_ids)) == "ab>X$cd>Y$"
    assert "".join(map(str, segment.action_mask)) == "0001100011"
    assert segment.spans == (TurnSpan(0, 3, 5), TurnSpan(1, 8, 10))
    assert segment.prompt_len == 3


def test_replay_in_two_segments():
    first, second = replay(Letters(), conversation("aXY!Z"))
    assert "".join(map(chr, first.token_ids)) == "a>X$>Y$"
    assert "".join(map(chr, second.token_ids)) == "aXY!>Z$"
    assert second.spans == (TurnSpan(2, 5, 7),)
    assert second.prompt_len == 5


@pytest.mark.parametrize("text", ["", "ab", "Xa"])
def test_replay_refuses(text):
    with pytest.raises(UsageError, match="needs an assistant message, and something before it"):
        replay(Letters(), conversation(text))


def test_list_without_plugins(monkeypatch):
    monkeypatch.setenv("AGENTFLY_DISABLE_PLUGINS", "all")
    result = CliRunner().invoke(cli, ["templates", "list"])
    assert result.exit_code == 0
    assert "pip install agentfly-plugin-templates-qwen" in result.stdout
    assert CliRunner().invoke(cli, ["templates", "list", "--json"]).stdout.strip() == "[]"
