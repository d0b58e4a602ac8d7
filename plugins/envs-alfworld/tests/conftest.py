"""Games of the official release (where the test data is), and a cache of translations that no test leaves behind."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fast_downward", reason="the planner is not installed (it has no wheel for this Python)")

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("AGENTFLY_TEST_DATA", ROOT / ".." / "shared" / "data")) / "alfworld"


@pytest.fixture(scope="session", autouse=True)
def translations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("translations")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTFLY_ALFWORLD_CACHE", str(folder))
        patch.delenv("ALFWORLD_DATA", raising=False)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield folder


Release = Callable[[str, int], Path]


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Lays out some games of a split, of every type, as the official release does; the folder for ``ALFWORLD_DATA``."""
    if not DATA.is_dir():
        pytest.skip(f"no ALFWorld games under {DATA} (AGENTFLY_TEST_DATA)")
    folder = tmp_path_factory.mktemp("release")
    domain = (DATA / "domain_2.1.1.pddl").read_text()
    grammar = (DATA / "grammar_2.1.1.twl2").read_text()

    def lay_out(split: str, count: int) -> Path:
        with lzma.open(DATA / f"alfworld_{split}.jsonl.xz", "rt") as lines:
            rows = [json.loads(line) for line in lines]
        step = max(1, len(rows) // count)  # spread over the file, which is sorted by type
        for row in rows[::step][:count]:
            place = folder / "json_2.1.1" / split / row["task"] / row["trial"]
            place.mkdir(parents=True, exist_ok=True)
            game = {
                "pddl_domain": domain,
                "grammar": grammar.replace("UNKNOWN GOAL", row["goal"]),
                "pddl_problem": row["problem"],
                "solvable": True,
                "walkthrough": row["walkthrough"],
            }
            (place / "game.tw-pddl").write_text(json.dumps(game))
        return folder

    return lay_out
