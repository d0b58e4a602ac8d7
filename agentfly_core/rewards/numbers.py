"""Reading the number that a text ends with: thousands separators, currencies, percent, fractions, LaTeX.

English notation: a comma groups thousands, a point separates decimals. Everything is exact (``Fraction``), and bounded
in size and time, since a model wrote the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 300
"""Longer numbers are not read, and neither are exponents beyond."""

MAX_TAIL = 10_000
"""Characters at the end of a text in which its number is looked for: a bound on the work, whatever a model writes."""

_MARKED = re.compile(r"####[ \t]*([^\n]*)")
_FRAC = re.compile(r"(\d?) ?\\[dtc]?frac ?(?:\{ ?([-+]?[\d.,]+) ?\} ?\{ ?([\d.,]+) ?\}|(\d) ?(\d))")
_NOISE = re.compile(r"\\[,;:!()\[\]]|\\left|\\right|[$£€¥~]")
_TIMES_TEN = re.compile(r" ?(?:\\times|\\cdot|[x*\u00d7\u00b7]) ?10 ?(?:\^|\*\*) ?\{? ?([-+]?\d+) ?\}?")
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w.)\]}])[-+])?"  # a sign after an operand is an operator or a hyphen
    r"(?<![A-Za-z_])(?P<digits>\d[\d,]*(?:\.\d+)?|\.\d+)(?P<exponent>[eE][-+]?\d+)?"
    r"(?: ?/ ?(?P<denominator>\d[\d,]*(?:\.\d+)?))?"
    r"(?P<percent> ?\\?%)?"
)
_MIXED = re.compile(r"(?<![\d/.,])(\d+) (\d+) ?/ ?(\d+)(?![\d/])")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+$")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as written. ``percent``: a percent sign followed it."""

    value: Fraction
    percent: bool = False

    def equals(self, other: Quantity, tolerance: float) -> bool:
        """Equal within a relative tolerance (absolute below 1); where only one is a percentage, 25% is 25 or 0.25."""
        if self.percent == other.percent:
            return _close(self.value, other.value, tolerance)
        share, plain = (self.value, other.value) if self.percent else (other.value, self.value)
        return _close(share, plain, tolerance) or _close(share / 100, plain, tolerance)


def final_number(text: str) -> Quantity | None:
    """The number after the last ``####``, or else in the last ``\\boxed{}``, or else the last of the text."""
    text = text[-MAX_TAIL:]
    if marked := _MARKED.findall(text):
        return last_number(marked[-1])
    boxed = _last_boxed(text)
    return last_number(text if boxed is None else boxed)


def last_number(text: str) -> Quantity | None:
    """The last number written in ``text``; None if there is none that can be read."""
    matches = list(_NUMBER.finditer(_plain(text[-MAX_TAIL:])))
    return next((found for match in reversed(matches) if (found := _quantity(match))), None)


def _plain(text: str) -> str:
    """As plain signs and single spaces: ``\\frac{1}{2}`` is ``1/2``, ``1 1/2`` is ``3/2``, ``2 x 10^3`` is ``2e3``."""
    text = " ".join(text.replace("\u2212", "-").replace("{,}", ",").split())
    text = _NOISE.sub("", text)
    text = _FRAC.sub(_fraction, text)
    text = _TIMES_TEN.sub(r"e\1 ", text)
    return _MIXED.sub(_improper, text)


def _fraction(match: re.Match[str]) -> str:
    whole = f"{match[1]} " if match[1] else ""
    return f"{whole}{match[2] or match[4]}/{match[3] or match[5]} "


def _improper(match: re.Match[str]) -> str:
    whole, numerator, denominator = match.groups()
    if len(whole) + len(numerator) + len(denominator) > MAX_DIGITS:
        return match[0]
    return f"{int(whole) * int(denominator) + int(numerator)}/{denominator}"


def _quantity(match: re.Match[str]) -> Quantity | None:
    value = _decimal(match["digits"], match["exponent"] or "")
    if value is None:
        return None
    if match["denominator"]:
        denominator = _decimal(match["denominator"], "")
        if not denominator:
            return None
        value /= denominator
    return Quantity(-value if match["sign"] == "-" else value, match["percent"] is not None)


def _decimal(digits: str, exponent: str) -> Fraction | None:
    whole, point, decimals = digits.partition(".")
    whole = whole.rstrip(",")
    # What is not grouped in thousands is a list: its last number counts.
    whole = whole.replace(",", "") if _THOUSANDS.match(whole) else whole.rpartition(",")[2]
    if len(whole) + len(decimals) > MAX_DIGITS or len(exponent) > 5 or abs(int(exponent[1:] or 0)) > MAX_DIGITS:
        return None
    return Fraction(f"{whole or 0}{point}{decimals}{exponent}")


def _last_boxed(text: str) -> str | None:
    start = max(text.rfind(r"\boxed{"), text.rfind(r"\fbox{"))
    if start < 0:
        return None
    begin = text.index("{", start) + 1
    depth = 1
    for i in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[begin:i]
    return text[begin:]


def _close(a: Fraction, b: Fraction, tolerance: float) -> bool:
    return abs(a - b) <= Fraction(tolerance) * max(Fraction(1), abs(a), abs(b))
