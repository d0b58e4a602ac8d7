"""Goal conditions, counted by hand."""

from __future__ import annotations

import pytest
from agentfly_envs_alfworld.goals import Goal
from agentfly_envs_alfworld.wheel import goals

from agentfly_core.types import UsageError

KINDS = {
    "mug_1": "object",
    "mug_2": "object",
    "lamp_1": "object",
    "desk_1": "receptacle",
    "desk_2": "receptacle",
    "shelf_1": "receptacle",
    "agent1": "agent",
    "here": "location",
    "there": "location",
}
FIXED = {
    ("objecttype", "mug_1", "mugtype"),
    ("objecttype", "mug_2", "mugtype"),
    ("objecttype", "lamp_1", "desklamptype"),
    ("toggleable", "lamp_1"),
    ("heatable", "mug_1"),
    ("heatable", "mug_2"),
    ("receptacletype", "desk_1", "desktype"),
    ("receptacletype", "desk_2", "desktype"),
    ("receptacletype", "shelf_1", "shelftype"),
    ("receptacleatlocation", "desk_1", "here"),
    ("receptacleatlocation", "desk_2", "there"),
}


def goal(kind):
    text = goals()[kind]["pddl"].replace("#", "-")
    return Goal.read("(define (problem p) " + text.format(obj="Mug", recep="Desk", toggle="DeskLamp"))


@pytest.mark.parametrize(
    ("kind", "facts", "reached", "conditions"),
    [
        ("pick_and_place_simple", [], 0, 1),
        ("pick_and_place_simple", ["inreceptacle mug_1 shelf_1"], 0, 1),
        ("pick_and_place_simple", ["inreceptacle mug_2 desk_2"], 1, 1),
        ("pick_heat_then_place_in_recep", ["inreceptacle mug_1 desk_1"], 1, 2),
        # One mug is hot and another in place: no single mug is both.
        ("pick_heat_then_place_in_recep", ["inreceptacle mug_1 desk_1", "ishot mug_2"], 1, 2),
        ("pick_heat_then_place_in_recep", ["inreceptacle mug_2 desk_1", "ishot mug_2"], 2, 2),
        ("pick_two_obj_and_place", ["inreceptacle mug_1 desk_1"], 1, 2),
        # Two mugs on two desks: the goal wants them together.
        ("pick_two_obj_and_place", ["inreceptacle mug_1 desk_1", "inreceptacle mug_2 desk_2"], 1, 2),
        ("pick_two_obj_and_place", ["inreceptacle mug_1 desk_2", "inreceptacle mug_2 desk_2"], 2, 2),
        ("look_at_obj_in_light", ["inreceptacle lamp_1 desk_1"], 1, 4),
        ("look_at_obj_in_light", ["inreceptacle lamp_1 desk_1", "atlocation agent1 there"], 1, 4),
        ("look_at_obj_in_light", ["inreceptacle lamp_1 desk_1", "atlocation agent1 here"], 2, 4),
        (
            "look_at_obj_in_light",
            ["inreceptacle lamp_1 desk_1", "atlocation agent1 here", "istoggled lamp_1", "holds agent1 mug_2"],
            4,
            4,
        ),
    ],
)
def test_conditions_that_hold_under_the_best_choice(kind, facts, reached, conditions):
    found = goal(kind)
    assert found.conditions == conditions
    assert found.reached(FIXED | {tuple(f.split()) for f in facts}, KINDS) == reached


@pytest.mark.parametrize(
    "text",
    [
        "(define (problem p))",
        "(define (problem p) (:goal (and (a b)",
        "(define (problem p) (:goal (or (a b) (c d))))",
        "(define (problem p) (:goal (exists (?o) (a ?o))))",
        "(define (problem p) (:goal (not (a b))))",
        "(define (problem p) (:goal))",
    ],
)
def test_goals_of_another_form_are_refused(text):
    with pytest.raises(UsageError, match="goal"):
        Goal.read(text)
