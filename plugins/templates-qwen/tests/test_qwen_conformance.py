"""The families pass the checks that every template must pass, over real and small tokenizers."""

from __future__ import annotations

import pytest
from agentfly_templates_qwen.families import QWEN3, QWEN3_INSTRUCT_2507, QWEN25

from agentfly_core.testing import check_template

VARIANTS = {
    "qwen2.5": (QWEN25, {}),
    "qwen3": (QWEN3, {}),
    "qwen3-no-thinking": (QWEN3, {"thinking": False}),
    "qwen3-instruct-2507": (QWEN3_INSTRUCT_2507, {}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_with_the_models_own_tokenizer_and_template(variant, tokenizer_of, reference_of):
    family, options = VARIANTS[variant]
    check_template(family, tokenizer_of(family.name), options=options, reference=reference_of(family.name))


def test_with_a_tokenizer_of_bytes(small):
    check_template(QWEN25, small())
