"""Whether an environment lists its tasks as data sources do."""

from __future__ import annotations

import inspect
from itertools import islice
from typing import Any

from agentfly_core.testing.report import Report, show
from agentfly_core.types import Task

LISTED_TASKS = 5
"""That are looked at: the list may be endless."""


def check_task_list(report: Report, factory: Any) -> None:
    """Check the static ``tasks(split, seed)`` of an environment that has it; both may be left out."""
    tasks = getattr(factory, "tasks", None)
    if not callable(tasks):
        return
    for split in ("train", "eval"):
        where = f"tasks({split!r})"
        with report.guard(where, "yield Task objects, the same ones each time"):
            takes = inspect.signature(tasks).parameters
            given = {name: value for name, value in {"split": split, "seed": 0}.items() if name in takes}
            found, again = (list(islice(tasks(**given), LISTED_TASKS)) for _ in range(2))
            good = all(isinstance(task, Task) for task in found)
            if not report.expect(good, f"it gave {show(found)}", where=where, fix="yield Task objects"):
                continue
            ids = [task.id for task in found]
            fix = "ids key the randomness of chains: make them unique"
            report.expect(len(set(ids)) == len(ids), f"two tasks have one id: {ids}", where=where, fix=fix)
            fix = "make the list depend on the split and its seed alone: resumed runs go on in it"
            report.expect(found == again, "the list differs from call to call", where=where, fix=fix)
