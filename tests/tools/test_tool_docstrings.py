"""Descriptions from docstrings of the three common styles."""

from __future__ import annotations

import pytest

from agentfly_core.tools import tool
from agentfly_core.tools.docstrings import parse_docstring

GOOGLE = """Find pages.

    Second paragraph: with a colon.

    Args:
        query (str): What to look for:
            words or a "phrase".
        *limit: How many.

    Returns:
        A list.
    """
NUMPY = """Find pages.

    Second paragraph: with a colon.

    Parameters
    ----------
    query : str
        What to look for:
        words or a "phrase".
    limit : int, optional
        How many.

    Returns
    -------
    list
        A list.
    """
REST = """Find pages.

    Second paragraph: with a colon.

    :param str query: What to look for:
        words or a "phrase".
    :param limit: How many.
    :type limit: int
    :returns: A list.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_styles(text):
    description, parameters = parse_docstring(text)
    assert description == "Find pages.\n\nSecond paragraph: with a colon."
    assert parameters["query"] == 'What to look for: words or a "phrase".'
    assert parameters["limit"] == "How many."


@pytest.mark.parametrize(
    ("text", "description"),
    [
        (None, ""),
        ("One line.", "One line."),
        ("Note: not a section.", "Note: not a section."),
        ("Adds.\n\nReturns: the sum of both.", "Adds.\n\nReturns: the sum of both."),
        ("Adds.\n\nExamples:\n    >>> add(1, 2)\n", "Adds."),
    ],
)
def test_descriptions(text, description):
    assert parse_docstring(text) == (description, {})


def test_numpy_names_that_share_a_description():
    assert parse_docstring("F.\n\nParameters\n----------\nx, y : int\n    A coordinate.\n")[1] == {
        "x": "A coordinate.",
        "y": "A coordinate.",
    }


def test_text_after_a_google_section_is_not_the_last_parameters():
    description, parameters = parse_docstring("F.\n\nArgs:\n    a: The a.\n\nMore.\n")
    assert parameters == {"a": "The a."}
    assert description == "F."


def test_the_tool_shows_them():
    @tool
    def f(query: str, limit: int = 3): ...

    f_doc = tool(name="f")(_documented)
    assert f_doc.description == "Find pages.\n\nSecond paragraph: with a colon."
    assert f_doc.parameters["properties"]["limit"] == {"type": "integer", "default": 3, "description": "How many."}
    assert f.description == ""


def _documented(query: str, limit: int = 3): ...


_documented.__doc__ = GOOGLE
