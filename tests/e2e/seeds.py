"""The quickstart with several seeds: what each reached on held-out tasks, and whether that is enough.

Usage: python tests/e2e/seeds.py [--seeds 1 2 3] [--sampled 0.8] [--greedy 0.95]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def quickstart(seed: int, root: Path) -> tuple[dict[str, float], dict[str, float], float]:
    """Metrics before and after, and the seconds it took."""
    started = time.monotonic()
    command = [str(Path(sys.executable).with_name("agentfly")), "train", "tiny:calculator", f"seed={seed}"]
    subprocess.run([*command, f"run.root={root / str(seed)}"], check=True)
    (run,) = (root / str(seed)).iterdir()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    gap = max(r["logp/max_abs_diff"] for r in rows if "logp/max_abs_diff" in r)
    return rows[0], {**rows[-1], "gap": gap}, time.monotonic() - started


def main() -> int:
    """0 if every seed reached both bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--sampled", type=float, default=0.8)
    parser.add_argument("--greedy", type=float, default=0.95)
    options = parser.parse_args()
    missed = 0
    lines = []
    with tempfile.TemporaryDirectory() as root:
        for seed in options.seeds:
            before, after, seconds = quickstart(seed, Path(root))
            sampled, greedy = after["eval/sampled/success"], after["eval/greedy/success"]
            missed += sampled < options.sampled or greedy < options.greedy or after["gap"] > 1e-4
            lines.append(
                f"seed {seed}: sampled {before['eval/sampled/success']:.3f} -> {sampled:.3f}, "
                f"greedy {before['eval/greedy/success']:.3f} -> {greedy:.3f}, "
                f"largest logprob gap {after['gap']:.1e}, {seconds:.0f} s"
            )
    print("\n".join(lines))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
