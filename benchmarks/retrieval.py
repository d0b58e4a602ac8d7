"""Local search on six real dictionaries, about 271,000 entries: time, memory, and whether it finds what one looks for.

    apt-get install dict-gcide dict-foldoc dict-jargon dict-vera dict-elements wordnet-base
    pip install bm25s PyStemmer          # to compare with; may be left out
    python benchmarks/retrieval.py [--root /] [--queries 1000] [--k 5]

Each step runs in a process of its own. CPU seconds are those of that process; memory is what it alone holds (anonymous
pages, peak), beside which the index lies in the page cache, once for all processes of the machine. ``--root`` is the
folder under which the packages' files lie (``AGENTFLY_DICTIONARIES``).
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DICTIONARIES = ("gcide", "foldoc", "jargon", "vera", "elements")
DIGITS = {c: n for n, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}

KNOWN_ITEMS: dict[str, set[str]] = {
    "walking around while asleep": {"sleepwalking", "somnambulism", "noctambulism", "somnambulist"},
    "chemical element with atomic number 79": {"gold"},
    "fear of open or public spaces": {"agoraphobia"},
    "instrument for measuring atmospheric pressure": {"barometer"},
    "algorithm that sorts by choosing a pivot element and partitioning the list": {"quicksort"},
    "science that studies earthquakes": {"seismology"},
    "a word that reads the same backwards and forwards": {"palindrome"},
    "flightless bird of New Zealand": {"kiwi", "moa", "apteryx", "kakapo", "weka", "notornis"},
    "government by the wealthy": {"plutocracy"},
    "equipment that connects computers over a telephone line": {"modem", "modulator/demodulator"},
    "inflammation of the liver": {"hepatitis"},
    "study of the origin and history of words": {"etymology"},
    "eight-armed sea creature": {"octopus", "octopod"},
    "person who makes or repairs barrels": {"cooper"},
    "greatest common divisor of two integers": {"greatest common divisor", "euclid's algorithm", "euclidean algorithm"},
    "belief that there is only one god": {"monotheism"},
    "killing of one's own brother": {"fratricide"},
    "memory that loses its content when power is turned off": {"volatile storage", "volatile memory", "volatile"},
    "triangle with three equal sides": {"equilateral triangle", "equilateral", "equiangular triangle"},
    "a seven-sided figure": {"heptagon"},
}
"""Questions with the headwords of which one must be among the first five."""


def entries(root: Path) -> Iterator[dict[str, str]]:
    """The entries of all dictionaries: id, title (headword) and text."""
    for name in DICTIONARIES:
        yield from _dictd(root / "usr/share/dictd", name)
    for part in ("noun", "verb", "adj", "adv"):
        yield from _wordnet(root / f"usr/share/wordnet/data.{part}", part)


def _dictd(folder: Path, name: str) -> Iterator[dict[str, str]]:
    data = gzip.decompress((folder / f"{name}.dict.dz").read_bytes())
    seen = set()
    for line in (folder / f"{name}.index").read_text(encoding="utf-8", errors="replace").splitlines():
        word, start, length = line.split("\t")[:3]
        at = (_number(start), _number(length))
        if word.startswith(("00-", "00database")) or at in seen:
            continue
        seen.add(at)
        text = data[at[0] : sum(at)].decode("utf-8", "replace")
        yield {"id": f"{name}:{at[0]}", "title": word, "text": " ".join(text.split())}


def _wordnet(path: Path, part: str) -> Iterator[dict[str, str]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            continue
        head, _, gloss = line.partition(" | ")
        fields = head.split()
        words = [fields[4 + 2 * n].replace("_", " ") for n in range(int(fields[3], 16))]
        yield {"id": f"wn:{part}:{fields[0]}", "title": words[0], "text": f"{', '.join(words)}: {gloss.strip()}"}


def _number(digits: str) -> int:
    value = 0
    for digit in digits:
        value = value * 64 + DIGITS[digit]
    return value


def missing(root: Path) -> list[str]:
    """The packages whose files are not under ``root``."""
    files = {f"dict-{name}": root / f"usr/share/dictd/{name}.dict.dz" for name in DICTIONARIES}
    files["wordnet-base"] = root / "usr/share/wordnet/data.noun"
    return [package for package, file in files.items() if not file.exists()]


def sampled_queries(corpus: Path, count: int) -> list[tuple[str, int]]:
    """Six words out of an entry's text, none of its headword, and the entry's row; the same every time."""
    lines = corpus.read_text(encoding="utf-8").splitlines()
    rng = random.Random(7)
    found: list[tuple[str, int]] = []
    while len(found) < count:
        row = rng.randrange(len(lines))
        entry = json.loads(lines[row])
        words = [w for w in re.findall("[A-Za-z]{4,}", entry["text"]) if w.lower() not in entry["title"].lower()]
        if len(words) >= 8:
            found.append((" ".join(rng.sample(words, 6)), row))
    return found


# --- one step, in a process of its own -------------------------------------------------------------------------------


class Memory:
    """Peak of the process's anonymous memory in MiB, looked at every 20 ms."""

    def __init__(self) -> None:
        self.peak = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, anonymous())
            time.sleep(0.02)


def anonymous() -> int:
    """MiB of this process's memory that is no file's."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) // 1024 if found else 0


def build(engine: str, corpus: Path, folder: Path) -> None:
    """Index the corpus."""
    if engine == "tantivy":
        from agentfly_tools_web.retrieval import build_index

        build_index(corpus, folder)
        return
    import bm25s
    import Stemmer

    rows = [json.loads(line) for line in corpus.open(encoding="utf-8")]
    texts = [f"{row['title']}\n{row['text']}" for row in rows]
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
    index = bm25s.BM25(k1=1.2, b=0.75)
    index.index(tokens, show_progress=False)
    index.save(folder)


def open_engine(engine: str, folder: Path) -> Callable[[str, int], list[int]]:
    """A function from query and k to rows."""
    if engine == "tantivy":
        from agentfly_tools_web.retrieval import open_index

        opened = open_index(folder)
        return lambda query, k: [passage.row for passage in opened.search(query, k)]
    import bm25s
    import Stemmer

    index = bm25s.BM25.load(folder, mmap=True)
    stemmer = Stemmer.Stemmer("english")

    def search(query: str, k: int) -> list[int]:
        tokens = bm25s.tokenize([query], stopwords="en", stemmer=stemmer, show_progress=False, return_ids=False)
        rows, _ = index.retrieve(tokens, k=k, show_progress=False)
        return [int(row) for row in rows[0]]

    return search


def step(action: str, engine: str, corpus: Path, folder: Path, k: int, queries: int) -> dict[str, Any]:
    """Do one step and say what it took."""
    asked = json.loads(corpus.with_suffix(".queries").read_text()) if action == "search" else []
    before, memory = anonymous(), Memory()
    wall, cpu = time.perf_counter(), time.process_time()
    if action == "build":
        build(engine, corpus, folder)
        size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        result: dict[str, Any] = {"disk": size / 2**20}
    else:
        search = open_engine(engine, folder)
        result = {"open": time.perf_counter() - wall}
        wall, cpu = time.perf_counter(), time.process_time()
        times, hits = [], 0
        for query, row in asked[:queries]:
            began = time.perf_counter()
            hits += row in search(query, k)
            times.append(time.perf_counter() - began)
        result |= {"hits": hits, "median": sorted(times)[len(times) // 2], "slowest": sorted(times)[-len(times) // 100]}
    result |= {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "memory": memory.peak - before}
    if action == "search":
        titles = [json.loads(line)["title"] for line in corpus.open(encoding="utf-8")]
        result["known"] = sum(known_item(search, titles, question, 5) for question in KNOWN_ITEMS)
    return result


def known_item(search: Callable[[str, int], list[int]], titles: list[str], question: str, k: int) -> bool:
    """Whether one of the headwords meant is among the first ``k``."""
    return bool(KNOWN_ITEMS[question] & {titles[row].lower() for row in search(question, k)})


def main() -> None:
    """Build, search, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--root", type=Path, default=Path(os.environ.get("AGENTFLY_DICTIONARIES", "/")))
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--step", nargs=4, metavar=("ACTION", "ENGINE", "CORPUS", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        action, engine, corpus, folder = given.step
        print(json.dumps(step(action, engine, Path(corpus), Path(folder), given.k, given.queries)))
        return
    if absent := missing(given.root):
        print(f"skipped: install the dictionaries with: apt-get install {' '.join(absent)}")
        return
    with tempfile.TemporaryDirectory() as temporary:
        compare(given, Path(temporary))


def compare(given: argparse.Namespace, folder: Path) -> None:
    """All engines that are installed, one after the other."""
    corpus = folder / "dictionaries.jsonl"
    with corpus.open("w", encoding="utf-8") as file:
        count = sum(bool(file.write(json.dumps(entry, ensure_ascii=False) + "\n")) for entry in entries(given.root))
    corpus.with_suffix(".queries").write_text(json.dumps(sampled_queries(corpus, given.queries)))
    print(f"{count:,} entries, {corpus.stat().st_size / 2**20:.0f} MiB; {given.queries:,} queries, k={given.k}")
    engines = ["tantivy"] + ["bm25s"] * bool(importlib.util.find_spec("bm25s") and importlib.util.find_spec("Stemmer"))
    for engine in engines:
        built, found = (run(a, engine, corpus, folder / engine, given) for a in ("build", "search"))
        print(
            f"{engine:8}  build: {built['cpu']:.1f} s CPU, {built['wall']:.1f} s, {built['memory']} MiB, "
            f"{built['disk']:.0f} MiB on disk\n"
            f"{'':8}  open: {found['open']:.2f} s; search: {found['cpu']:.2f} s CPU, {found['wall']:.2f} s in all, "
            f"median {1e3 * found['median']:.2f} ms, 99% below {1e3 * found['slowest']:.1f} ms, {found['memory']} MiB\n"
            f"{'':8}  among the first {given.k}: the entry a query was drawn from, {found['hits']} of {given.queries}; "
            f"known items: {found['known']} of {len(KNOWN_ITEMS)}"
        )


def run(action: str, engine: str, corpus: Path, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """``step`` in a process of its own."""
    command = [sys.executable, __file__, "--k", str(given.k), "--queries", str(given.queries)]
    done = subprocess.run(
        [*command, "--step", action, engine, str(corpus), str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
