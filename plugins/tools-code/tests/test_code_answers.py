"""Which code of a response is scored, and for how long it may run."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from agentfly_tools_code.fences import answer_block, blocks
from agentfly_tools_code.rewards import code_tests, program_output

from agentfly_core.calls import CallFailed
from agentfly_core.resources import InProcessCoordinator, ResourceManager
from agentfly_core.types import ChainStatus, Task, ToolContext, Trajectory

ADD = "def add(a, b):\n    return a + b\n"
DOC = "def add(a, b):\n    '''doc\n    ```\n    add(1, 2)\n    ```\n    '''\n    return a + b\n"

RESPONSES = {
    "example of the output": (f"```python\n{ADD}```\nExample output:\n```\n3\n```\n", ADD),
    "without a language": (f"```\n{ADD}```\nExample output:\n```\n3\n```\n", ADD),
    "output that is no code": (f"```\n{ADD}```\nIt prints:\n```\nthe sum is 3.\n```\n", ADD),
    "only a value": ("```\n3\n```", "3\n"),
    "in a list": ("- answer:\n  ```python\n  def add(a, b):\n      return a + b\n  ```\n", ADD),
    "in a numbered list": ("1. ```python\n   def add(a, b):\n       return a + b\n   ```\n", ADD),
    "tabs": ("\t```python\n\tdef add(a, b):\n\t    return a + b\n\t```\n", ADD),
    "fences in a docstring": (f"```python\n{DOC}```\n", DOC),
    "a longer fence": (f"````python\n{ADD}```\n# still code\n````\n", f"{ADD}```\n# still code\n"),
    "closing a little deeper": (f"```python\n{ADD}   ```\n", ADD),
    "the last of two": (f"```python\nx = 1\n```\n```py\n{ADD}```\n", ADD),
    "none": ("```sql\nSELECT 1\n```\n```python\nunclosed", ""),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_the_code_of_the_answer_is_found_whole(name: str) -> None:
    response, code = RESPONSES[name]
    assert answer_block(response) == code


def test_a_fence_with_more_behind_it_closes_nothing() -> None:
    assert blocks("```\na\n```python\nb\n```\n") == [("", "a\n```python\nb\n", True)]


def chain(code: str, **fields: Any) -> Trajectory:
    response = f"```python\n{code}\n```"
    return Trajectory(Task("t", (), fields), 0, "g", "train", ChainStatus.COMPLETED, final_response=response)


def test_all_programs_together_keep_the_limit(resources: ResourceManager) -> None:
    """Without it four would need 80 seconds."""
    tests = [{"input": "", "output": "1"}] * 4
    code = "import os, time\nif os.path.exists('seen'): time.sleep(20)\nopen('seen', 'w').close()\nprint(1)"
    reward = code_tests(timeout=8.0, call_timeout=25.0, partial=True)
    began = time.monotonic()
    result = asyncio.run(reward.score(chain(code, tests=tests), ToolContext(resources=resources)))
    assert (result.score, result.components) == (0.25, {"tests_passed": 0.25})
    assert time.monotonic() - began < 60


def test_the_limit_of_a_program_is_its_option_alone(resources: ResourceManager) -> None:
    """``FunctionReward`` has a limit of its own, which a longer option must not meet."""
    assert program_output(timeout=900.0).timeout is None
    reward = program_output(timeout=1.0)
    slow = chain("import time\ntime.sleep(60)\nprint(1)", answer="1")
    assert asyncio.run(reward.score(slow, ToolContext(resources=resources))).score == 0.0


@pytest.mark.parametrize(("capacity", "total"), [({"process": 1}, None), ({"process": 4}, 1)])
def test_too_small_a_capacity_is_said_at_once(
    resources: ResourceManager, capacity: dict[str, int], total: int | None
) -> None:
    small = ResourceManager(InProcessCoordinator(capacity, total), resources._instances.providers)

    async def main() -> None:
        with pytest.raises(CallFailed, match="raise it to at least 2"):
            await code_tests().score(chain(ADD, tests="assert add(1, 2) == 3"), ToolContext(resources=small))
        assert (await program_output().score(chain("print(1)", answer="1"), ToolContext(resources=small))).score == 1.0
        await small.close()

    asyncio.run(asyncio.wait_for(main(), 120))
