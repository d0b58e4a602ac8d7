"""RL algorithms: advantages and losses as pure functions over tensors. Torch is needed to call them, not to import.

Where to find a formula: group baselines in ``group``, whitened returns in ``reinforce``, turn-level credit in
``turns``, GAE in ``gae`` and ``ppo``; token losses in ``losses``, their mean over a batch in ``aggregation``, the ratio
between engine and trainer in ``corrections``, penalties against a reference model in ``kl``. Conventions shared by all
of them are in ``statistics`` (groups, whitening) and ``sampled`` (chains without their gaps).
"""
