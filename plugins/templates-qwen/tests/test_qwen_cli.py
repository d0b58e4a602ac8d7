"""``agentfly templates`` on folders like a model's."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from agentfly_core.cli import cli


def run(*arguments, text=None):
    return CliRunner().invoke(cli, ["templates", *map(str, arguments)], input=text)


CONTROL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"),
    *("<tool_response>", "</tool_response>", "<think>", "</think>"),
)


@pytest.fixture
def folder(tmp_path, small, jinja_of):
    """Like a Qwen3 model's folder, with a small tokenizer."""
    small(CONTROL).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": jinja_of("qwen3")}))
    return tmp_path


@pytest.fixture
def real_folder(tmp_path, qwen3_file, jinja_of):
    """A Qwen3 model's folder without the model."""
    (tmp_path / "tokenizer.json").write_bytes(qwen3_file.read_bytes())
    (tmp_path / "chat_template.jinja").write_text(jinja_of("qwen3"), encoding="utf-8")
    return tmp_path


CONVERSATION = [
    {"role": "user", "content": "hi <|im_end|>"},
    {"role": "assistant", "content": "<think>\nx\n</think>\n\nyo"},
    {"role": "user", "content": "b"},
    {"role": "assistant", "content": "c\x1b[31m"},
    {"role": "user", "content": "left out"},
]


def test_list():
    rows = json.loads(run("list", "--json").stdout)
    assert {"qwen2.5", "qwen3", "qwen3-instruct-2507"} <= {r["name"] for r in rows}
    assert "Qwen2.5 Instruct" in run("list").stdout


def test_check_says_which_turns_differ(real_folder):
    result = run("check", real_folder, "--template", "qwen3", "--json")
    assert result.exit_code == 0
    (report,) = json.loads(result.stdout)
    assert report["fits"]
    differing = {(s["probe"], s["turn"]): s["template_history"] for s in report["steps"] if not s["append_equal"]}
    assert differing == {
        ("turn ended on another stop token", 1): "new segment",
        ("turn begins with newlines", 1): "appended",
        ("thinking, then user", 1): "new segment",
        ("thinking, tool, user", 2): "new segment",
        ("empty thinking", 1): "new segment",
        ("thinking without newlines", 1): "new segment",
    }
    why = {s["probe"]: s["why"] for s in report["steps"] if s["why"]}
    assert why["thinking, then user"].startswith("history is rewritten: kept '<think>")
    assert why["turn begins with newlines"].startswith("same text, other ids: at id 14")


def test_check_of_all_templates_finds_the_one_that_fits(folder):
    result = run("check", folder)
    assert result.exit_code == 0
    assert "qwen:qwen3 fits: 38 steps" in result.stdout
    assert "qwen:qwen2.5: does not fit" in result.stdout


def test_check_with_thinking_off(folder):
    result = run("check", folder, "--template", "qwen3", "--option", "thinking=false", "--json")
    (report,) = json.loads(result.stdout)
    assert report["fits"]
    observations = [s for s in report["steps"] if s["turn"]]
    assert {s["template_history"] for s in observations} == {"new segment"}


def test_check_of_a_wrong_template_is_an_error(folder):
    result = run("check", folder, "--template", "qwen2.5")
    assert result.exit_code == 2
    assert "template 'qwen2.5' is not the model's own: 21 of 38 steps differ, the first in 'two tools'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "{}", "--template", "qwen4"], "unknown template 'qwen4'; did you mean"),
        (["check", "{}/none"], "no tokenizer at"),
        (["check", "{}/empty"], "has no tokenizer.json"),
        (["check", "{}/tokenizer_config.json"], "is no tokenizer file"),
        (["check", "{}/bare"], "has no chat template"),
        (["check", "{}", "--template", "qwen3", "--option", "thinkin=1"], "did you mean 'thinking'"),
        (["check", "{}", "--template", "qwen3", "--option", "thinking"], "is not of the form KEY=VALUE"),
        (["render", "{}", "{}/tokenizer_config.json", "--template", "qwen3"], "expected a list of messages"),
    ],
)
def test_wrong_input_is_one_line(folder, arguments, said):
    (folder / "empty").mkdir()
    (folder / "bare").mkdir()
    (folder / "bare" / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    result = run(*(a.format(folder) for a in arguments))
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")


def test_render_marks_what_is_trained(folder):
    result = run("render", folder, "-", "--template", "qwen3", text=json.dumps(CONVERSATION))
    assert result.exit_code == 0
    assert "segment 1 of 1" in result.stdout
    assert "⟦<think>\nx\n</think>\n\nyo<|im_end|>⟧\n<|im_start|>user\nb<|im_end|>" in result.stdout
    assert "⟦c\\x1b[31m<|im_end|>⟧" in result.stdout
    assert "left out" not in result.stdout


def test_render_json_in_both_histories(folder):
    text = json.dumps({"messages": CONVERSATION, "tools": []})
    (one,) = json.loads(run("render", folder, "-", "--template", "qwen3", "--json", text=text).stdout)
    assert [s["text"] for s in one["stretches"] if s["trained"]] == [
        "<think>\nx\n</think>\n\nyo<|im_end|>",
        "c\x1b[31m<|im_end|>",
    ]
    assert sum(one["action_mask"]) == sum(s["end"] - s["start"] for s in one["stretches"] if s["trained"])
    arguments = ("render", folder, "-", "--template", "qwen3", "--history", "template", "--json")
    first, second = json.loads(run(*arguments, text=text).stdout)
    assert first["token_ids"] == one["token_ids"][: len(first["token_ids"])]
    assert "<think>" not in second["stretches"][0]["text"]


def test_render_ids(folder):
    result = run("render", folder, "-", "--template", "qwen3", "--ids", text=json.dumps(CONVERSATION[:2]))
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert rows[0][:3] == ["0", "0", "1"]
    assert rows[-1][2:] == ["2", "yes", '"<|im_end|>"']


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON"),
        ("[]", "needs an assistant message, and something before it"),
        ('[{"role": "user", "content": "x"}]', "needs an assistant message"),
        (
            '[{"role": "user", "content": null}, {"role": "assistant", "content": ""}]',
            "messages[0].content: is missing",
        ),
        ('{"messages": [], "tools": 1}', "tools must be a list"),
    ],
)
def test_render_of_wrong_conversations(folder, text, said):
    result = run("render", folder, "-", "--template", "qwen3", text=text)
    assert result.exit_code == 2
    assert said in result.stderr
