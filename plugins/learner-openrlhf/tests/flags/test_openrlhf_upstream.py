"""OpenRLHF's parser and checks are read from its installed source; an unknown form of it is one clear error."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentfly_learner_openrlhf.flags import resolve, upstream
from agentfly_learner_openrlhf.flags.upstream import Upstream, arguments, installed
from agentfly_learner_openrlhf.learner import OpenRLHFLearner
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.types import MissingDependency, UsageError

MINIMAL = ["--actor.model_name_or_path=m", "--train.agent_func_path=a.py", "--vllm.num_engines=1"]


@pytest.fixture
def doctored(tmp_path: Path) -> Callable[..., Upstream]:
    """A copy of OpenRLHF's script with some text replaced."""

    def make(*replacements: tuple[str, str], file: str = upstream.SCRIPT) -> Upstream:
        for name in (upstream.SCRIPT, "utils/config.py"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(installed().folder / name, tmp_path / name)
        text = (tmp_path / file).read_text()
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / file).write_text(text)
        return Upstream(tmp_path, "9.9.9")

    return make


def test_the_whole_parser_is_there() -> None:
    flags = installed().flags
    source = (installed().folder / upstream.SCRIPT).read_text()
    calls, for_actor_and_critic = source.count("parser.add_argument("), source.count('f"--{prefix}.')
    assert len(flags) == calls + for_actor_and_critic == 167
    assert flags["ds.zero_stage"].default == 2
    assert flags["critic.adam.lr"].default == 9e-6


def test_the_checks_are_openrlhfs() -> None:
    namespace = installed().parse(MINIMAL).namespace
    assert namespace.reward.remote_url == ["agent"]
    assert namespace.actor.eps_clip_low_high == (0.2, 0.2)
    assert namespace.rollout.vllm_generate_batch_size == namespace.rollout.batch_size
    with pytest.raises(UsageError, match=r"refuses these options: .*requires --train.async_enable"):
        installed().parse([*MINIMAL, "--train.partial_rollout_enable"])


def test_what_openrlhf_says_is_kept() -> None:
    parsed = installed().parse([*MINIMAL, "--ds.ring_attn_size=2", "--ds.attn_implementation=flash_attention_2"])
    assert parsed.warnings == ["--ring_attn_size > 1 requires --packing_samples."]
    assert parsed.namespace.ds.packing_samples is True


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--ds.zero_stage=two", "invalid int value: 'two'"),
        ("--ds.zero=2", "has no flag --ds.zero=2"),
        ("--actor.optim=sgd", "invalid choice"),
    ],
)
def test_a_wrong_argument_is_one_error_and_ends_nothing(argument: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        installed().parse([*MINIMAL, argument])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('if __name__ == "__main__":', 'if __name__ == "main":', "has no single `if __name__"),
        ("args = parser.parse_args()", "args = parser.parse_intermixed_args()", "has no `args = parser.parse_args"),
        ("parser = argparse.ArgumentParser()", "parser = make_parser()", "does not begin with"),
        ("    train(args)\n", "    fit(args)\n", "does not end with"),
        ("args = hierarchize(args)", "args = nest(args)", "does not begin its checks"),
        ("    # VLM constraints", "    import torch\n    # VLM constraints", "uses import torch"),
        ("    # Context Parallel", "    add_more(parser)\n    # Context Parallel", "uses add_more"),
        ("if args.use_ms:", "if args.use_other_hub:", "treats --use_ms"),
        ("import argparse\n", "import argparse )\n", "cannot be read"),
    ],
)
def test_another_form_of_the_script_is_refused(
    doctored: Callable[..., Upstream], old: str, new: str, said: str
) -> None:
    with pytest.raises(UsageError, match=r"OpenRLHF 9\.9\.9 is a version that .* does not know") as caught:
        doctored((old, new)).parse(MINIMAL)
    assert said in str(caught.value)
    assert "pip install 'openrlhf[vllm]==0.11.2'" in str(caught.value)


def test_another_hierarchize_is_refused(doctored: Callable[..., Upstream]) -> None:
    with pytest.raises(UsageError, match=r"has another utils/config\.py"):
        doctored(("def hierarchize", "def nest"), file="utils/config.py").parse(MINIMAL)


def test_a_flag_that_is_gone_is_refused(
    doctored: Callable[..., Upstream], load: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = doctored(('"--ds.zero_stage"', '"--ds.stage"'))
    monkeypatch.setattr("agentfly_learner_openrlhf.flags.resolution.installed", lambda: newer)
    with pytest.raises(
        UsageError, match=r"9\.9\.9 has no flag --ds\.zero_stage, which agentfly-plugin-learner-openrlhf"
    ):
        resolve(load())  # type: ignore[arg-type]


def test_without_openrlhf_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'openrlhf\[vllm\]==0.11.2'"):
        installed.__wrapped__()


@pytest.mark.parametrize("options", [{}, {"submit": "http://head:8265"}])
def test_without_ray_the_error_says_what_to_install(
    load: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    loaded = load(**options)
    learner = OpenRLHFLearner(**loaded.recipe.learner.options)
    assert learner.check(loaded) == []
    with pytest.raises(MissingDependency, match=r"'ray'.* pip install 'openrlhf\[vllm\]==0.11.2'"):
        learner.check_installed(loaded)


def test_a_folder_of_this_name_is_not_openrlhf(tmp_path: Path) -> None:
    (tmp_path / "openrlhf").mkdir()
    code = f"import sys; sys.path[:] = [{str(tmp_path)!r}, *(p for p in sys.path if 'site-packages' not in p)]\n"
    code += "import importlib.util; print(importlib.util.find_spec('openrlhf').origin)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None", "which is how `installed` tells them apart"


def test_a_copy_that_no_installer_knows_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", unknown)
    found = installed.__wrapped__()
    assert found.folder == installed().folder
    assert found.version == f"in {found.folder}"


def test_the_known_version_is_the_installed_one() -> None:
    assert importlib.metadata.version("openrlhf") == upstream.KNOWN_VERSION, "worth a look at what has changed"


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["actor.adam.lr", "reward.overlong_penalty_factor"]), st.floats(allow_nan=False, width=64)
    ),
    st.sampled_from(["", "-x", "--ds.zero_stage", "a b", "ä=ö"]),
)
def test_values_survive_the_command_line(numbers: dict[str, float], name: str) -> None:
    argv = list(arguments({**numbers, "logger.wandb.run_name": name, "vllm.enforce_eager": True, "data.max_len": None}))
    flat, unknown = installed()._parser().parse_known_args(argv)
    assert not unknown
    assert vars(flat)["logger.wandb.run_name"] == name
    assert {flag: vars(flat)[flag] for flag in numbers} == numbers
    assert vars(flat)["vllm.enforce_eager"] is True
    assert vars(flat)["data.max_len"] == 2048


def test_nothing_heavy_is_imported(questions: Path, tmp_path: Path) -> None:
    """A dry run on a machine that has neither ray nor torch nor vLLM."""
    pytest.importorskip("agentfly_models_tiny")
    blocked = ("torch", "ray", "vllm", "deepspeed", "transformers", "datasets", "flash_attn")
    code = (
        "import sys\n"
        f"for name in {blocked!r}: sys.modules[name] = None\n"
        "from agentfly_core.cli import main\n"
        "sys.argv = ['agentfly', 'train', 'tiny:calculator', 'learner.name=openrlhf', '--dry-run', '--json']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert '"--actor.model_name_or_path"' in done.stdout
    assert not list(tmp_path.iterdir()), "a dry run writes nothing"
