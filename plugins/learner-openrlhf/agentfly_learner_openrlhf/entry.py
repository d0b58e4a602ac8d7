"""``python -m agentfly_learner_openrlhf.entry RUN``: what a submitted job runs on the cluster."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path

from agentfly_core.recipes.load import load_recipe
from agentfly_core.runs import RunFolder
from agentfly_core.types import AgentFlyError
from agentfly_learner_openrlhf.driver import launch
from agentfly_learner_openrlhf.job import recipe_file
from agentfly_learner_openrlhf.submit import LOOK_SECONDS, stop_file

SUBMITTED = ("submit", "working_dir")
"""Options that have done their work when the job runs."""


def main(arguments: list[str] | None = None) -> int:
    """Train into the run folder; returns the exit code."""
    parser = argparse.ArgumentParser(prog="agentfly_learner_openrlhf.entry", description=__doc__)
    parser.add_argument("run", type=Path, help="run folder, with the recipe that the submitter left in it")
    parser.add_argument("--resume", action="store_true", help="go on from the latest checkpoint")
    given = parser.parse_args(arguments)
    stop = threading.Event()
    threading.Thread(target=_listen, args=(stop_file(given.run), stop), name="agentfly-stop", daemon=True).start()
    folder = RunFolder.open(given.run)
    try:
        folder.take(shared=True)
        with folder.recording_failure():
            recipe = load_recipe(recipe_file(given.run), [f"learner.options.{name}=null" for name in SUBMITTED])
            launch(recipe, folder, resume=given.resume, stop=stop)
    except AgentFlyError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _listen(file: Path, stop: threading.Event) -> None:
    while not file.exists():
        time.sleep(LOOK_SECONDS)
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
