"""What training learns with several seeds: success on held-out tasks before and after, and whether that is enough.

Usage: python tests/e2e/seeds.py [quickstart] [rooms] [--seeds 1 2 3]

``quickstart`` is the calculator task; ``rooms`` the text world, whose model is warmed up on demonstrations first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

Row = dict[str, float]
SAMPLED, GREEDY = "eval/sampled/success", "eval/greedy/success"


def agentfly(*arguments: str) -> None:
    """Run the command that is installed beside this Python."""
    subprocess.run([str(Path(sys.executable).with_name("agentfly")), *arguments], check=True)


def quickstart(seed: int, root: Path) -> None:
    agentfly("train", "tiny:calculator", f"seed={seed}", f"run.root={root}")


def rooms(seed: int, root: Path) -> None:
    model = root.with_name(f"{root.name}-model")
    agentfly("sft", "tiny:rooms", f"seed={seed}", "--output", str(model))
    agentfly("train", "tiny:rooms", f"seed={seed}", f"model.path={model}", f"run.root={root}")


def quickstart_learned(before: Row, after: Row) -> bool:
    return after[SAMPLED] >= 0.8 and after[GREEDY] >= 0.95


def rooms_learned(before: Row, after: Row) -> bool:
    return after[SAMPLED] >= max(0.95, before[SAMPLED] + 0.1) and after[GREEDY] >= 0.95


TASKS: dict[str, tuple[Callable[[int, Path], None], Callable[[Row, Row], bool]]] = {
    "quickstart": (quickstart, quickstart_learned),
    "rooms": (rooms, rooms_learned),
}


def main() -> int:
    """0 if every seed learned enough, and sampler and learner agreed on every batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help=", ".join(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    missed = 0
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for task in options.tasks:
            train, learned = TASKS[task]
            for seed in options.seeds:
                root = Path(folder) / f"{task}-{seed}"
                started = time.monotonic()
                train(seed, root)
                seconds = time.monotonic() - started
                (run,) = root.iterdir()
                rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
                gap = max(r["logp/max_abs_diff"] for r in rows if "logp/max_abs_diff" in r)
                before, after = rows[0], rows[-1]
                missed += not learned(before, after) or gap > 1e-4
                lines.append(
                    f"{task}, seed {seed}: sampled {before[SAMPLED]:.3f} -> {after[SAMPLED]:.3f}, "
                    f"greedy {before[GREEDY]:.3f} -> {after[GREEDY]:.3f}, "
                    f"largest logprob gap {gap:.1e}, {seconds:.0f} s"
                )
    print("\n".join(lines))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
