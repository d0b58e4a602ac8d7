"""The process behind ``verifier.Verifier``: a JSON pair a line in, ``true`` or ``false`` a line out.

Its first line is ``ready``, or why it is not.
"""

from __future__ import annotations

import json
import logging
import sys


def main() -> None:
    """Answer until the input ends."""
    try:
        from math_verify import LatexExtractionConfig, parse, verify
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return
    logging.disable(logging.CRITICAL)
    print("ready", flush=True)
    # Only LaTeX: the package reads plain expressions with a parser that evaluates them as Python.
    latex = [LatexExtractionConfig()]
    for line in sys.stdin:
        answer, response = json.loads(line)
        wanted = parse(f"${answer}$", latex, parsing_timeout=None)
        found = parse(response, latex, parsing_timeout=None)
        same = bool(wanted and found and verify(wanted, found, timeout_seconds=None))
        print(json.dumps(same), flush=True)


if __name__ == "__main__":
    main()
