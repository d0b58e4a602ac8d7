"""Lets OpenRLHF 0.11.2, vLLM and DeepSpeed run on a CPU. For tests only: nothing that users import comes from here.

A ``.pth`` file calls ``install`` at the start of every Python process of the environment, so that Ray's workers and
vLLM's engines are covered without a line in the plugin. Nothing is changed until one of the modules is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

PATCHED = {
    "deepspeed.comm.torch": "deepspeed_comm",
    "openrlhf": "torch_cuda",
    "openrlhf.trainer.ray.ppo_actor": "dump_batches",
    "openrlhf.trainer.ray.vllm_worker_wrap": "vllm_worker",
    "openrlhf.utils.deepspeed.deepspeed": "device_mesh",
    "openrlhf.utils.deepspeed.deepspeed_utils": "torch_adam",
    "openrlhf.utils.distributed_util": "gloo_group",
    "ray._private.accelerators.nvidia_gpu": "pretended_gpus",
    "ray._private.utils": "pretended_cpus",
    "vllm.model_executor.layers.utils": "plain_linear",
}
"""Module -> function of ``patches`` that is called with it, right after its import."""


class _Finder:
    """Finds the modules to patch, once each, and patches them when they are loaded."""

    def __init__(self) -> None:
        self._left = dict(PATCHED)

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            self._declare_torchvision_ops()
            return None
        function = self._left.pop(name, None)
        if function is None:
            return None
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            getattr(importlib.import_module("openrlhf_cpu.patches"), function)(module)

        spec.loader.exec_module = exec_module
        return spec

    def _declare_torchvision_ops(self) -> None:
        """The Python part of torchvision loads without its compiled part, if these are declared."""
        if "torchvision" in self._left:
            return
        import torch

        self._left["torchvision"] = library = torch.library.Library("torchvision", "DEF")
        for op in ("nms", "qnms"):
            library.define(op + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def install() -> None:
    """Once a process, and only where a test asks for it."""
    if os.environ.get("OPENRLHF_CPU") and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
