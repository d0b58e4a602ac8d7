"""The minimal script, on a real (random, very small) model and the hf backend."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentfly_core import HFAgent
from agentfly_core.plugins import Plugins

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.torch


def save_model(folder: Path) -> None:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=264,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)


def test_the_minimal_script(model: Path, plugins: Plugins, parts: dict[str, Any]) -> None:
    save_model(model)

    async def main() -> Any:
        agent = HFAgent(
            model_name_or_path=str(model),
            tools=[parts["double"]],
            template="mini",
            backend_config={"backend": "hf"},
            reward="short",
            plugins=plugins,
        )
        messages = [{"role": "user", "content": "What is 1 + 1?"}]
        first = await agent.run(messages=messages, max_turns=3, num_chains=3, max_tokens=8)
        greedy = [await agent.run(messages=messages, max_turns=1, temperature=0.0, max_tokens=8) for _ in range(2)]
        await agent.close()
        return first, greedy

    first, greedy = asyncio.run(main())
    assert len(first.trajectories) == len(first.rewards) == 3
    assert all(0 < t.sampled_tokens <= 24 for t in first.trajectories)
    assert len({t.segments[0].token_ids for t in first.trajectories}) > 1  # chains differ
    assert greedy[0].trajectories[0].segments[0].token_ids == greedy[1].trajectories[0].segments[0].token_ids


def test_a_script_that_never_closes_its_model_ends_quietly(model: Path) -> None:
    save_model(model)
    demo = Path(__file__).parent.parent / "recipes" / "demo_parts.py"
    script = (
        "import asyncio, sys\n"
        "from agentfly_core import HFAgent\n"
        "from agentfly_core.plugins import Plugins\n"
        "plugins = Plugins.load(); plugins.load_path(sys.argv[2])\n"
        "agent = HFAgent(sys.argv[1], template='mini', plugins=plugins)\n"
        "result = asyncio.run(agent.run([{'role': 'user', 'content': 'hm?'}], max_turns=1, max_tokens=4))\n"
        "print(len(result.trajectories))\n"
    )
    command = [sys.executable, "-c", script, str(model), str(demo)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
    assert "Traceback" not in done.stderr
