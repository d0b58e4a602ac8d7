"""A limit that limits nothing is refused, wherever it is given and whatever would have to keep it."""

from __future__ import annotations

import math

import pytest

from agentfly_core.resources.sandboxes import DockerProvider, ProcessProvider
from agentfly_core.types import ResourceSpec, UsageError

WRONG = [
    *((name, value) for name in ("memory", "pids", "disk") for value in (0, -1, -3, 1.5, True, math.nan)),
    *(("cpu", value) for value in (0, 0.0, -1.0, 1e-10, math.nan, math.inf, True)),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
@pytest.mark.parametrize(
    "make",
    [
        lambda **limit: ResourceSpec("docker", **limit),
        lambda **limit: ResourceSpec.make("process", **limit),
        lambda **limit: ProcessProvider(**limit),
        lambda **limit: DockerProvider(**limit),
    ],
)
def test_a_limit_is_greater_than_nothing(make, name, value):
    with pytest.raises(UsageError, match=f"^{name} must be a"):
        make(**{name: value})


@pytest.mark.parametrize("provider", [ProcessProvider, DockerProvider])
def test_nobody_waits_for_a_start_that_may_never_be(provider):
    with pytest.raises(UsageError, match=r"^starts must be a whole number"):
        provider(starts=0)


def test_the_least_limits_are_taken():
    assert ResourceSpec("process", cpu=0.01, memory=1, pids=1, disk=1).cpu == 0.01
