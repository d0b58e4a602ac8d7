"""One function for each module that does not work on a CPU as it is."""

from __future__ import annotations

import itertools
import os
from pathlib import Path


class _Device(str):
    """A device that torch takes for the CPU, and that reads ``cuda:0`` where a module writes f"cuda:{device}"."""

    __slots__ = ()

    def __format__(self, spec):
        return "0"


def pretended_gpus(module):
    """Ray finds as many GPUs as the test wants."""
    module.NvidiaGPUAcceleratorManager.get_current_node_num_accelerators = staticmethod(
        lambda: int(os.environ.get("OPENRLHF_CPU_GPUS", "4"))
    )


def pretended_cpus(module):
    """Ray places one actor a CPU: let there be enough of them."""
    module.get_num_cpus = lambda *arguments, **options: int(os.environ.get("OPENRLHF_CPU_CPUS", "8"))


def torch_cuda(module):
    """What OpenRLHF asks of torch.cuda, of the CPU."""
    import torch

    torch.cuda.current_device = lambda: _Device("cpu")
    torch.cuda.set_device = lambda device: None
    torch.cuda.synchronize = lambda *arguments, **options: None
    torch.cuda.current_stream = lambda *arguments, **options: None


def device_mesh(module):
    """Process groups over CPUs."""
    make, average = module.init_device_mesh, module.DeepspeedStrategy.moving_average
    module.init_device_mesh = lambda device, *arguments, **options: make("cpu", *arguments, **options)
    module.DeepspeedStrategy.moving_average = lambda self, model, ema, beta=0.992, device="cpu": average(
        self, model, ema, beta, "cpu"
    )


def torch_adam(module):
    """DeepSpeed's fused Adam is compiled on first use, for minutes."""
    make = module.get_train_ds_config

    def get_train_ds_config(*arguments, **options):
        config = make(*arguments, **options)
        if config.get("optimizer", {}).get("type") == "AdamW":
            config["optimizer"]["params"]["torch_adam"] = True
        return config

    module.get_train_ds_config = get_train_ds_config


def deepspeed_comm(module):
    """The shared-memory operator is compiled on first use as well."""
    module.build_shm_op = lambda: None


def gloo_group(module):
    """Weights travel from trainer to engine over gloo: without NCCL the original broadcasts nothing."""

    class Group:
        def __init__(self, group):
            self._group = group

        def broadcast(self, tensor, src, stream=None):
            from torch.distributed import BroadcastOptions

            options = BroadcastOptions()
            options.rootRank = src
            self._group.broadcast([tensor], options).wait()

    def stateless_init_process_group(master_address, master_port, rank, world_size, device):
        from vllm.distributed.utils import stateless_init_torch_distributed_process_group

        return Group(
            stateless_init_torch_distributed_process_group(master_address, master_port, rank, world_size, "gloo")
        )

    module.stateless_init_process_group = stateless_init_process_group


def vllm_worker(module):
    """Receive weights on the CPU, and keep them for the test after each complete broadcast (OPENRLHF_CPU_DUMP)."""
    broadcasts = itertools.count()

    def update_weight(self, name, dtype, shape, empty_cache=False):
        import torch

        assert dtype == self.model_config.dtype
        weight = torch.empty(shape, dtype=dtype)
        self._model_update_group.broadcast(weight, src=0)
        self.model_runner.model.load_weights(weights=[(name, weight)])
        if empty_cache and os.environ.get("OPENRLHF_CPU_DUMP"):
            weights = {n: p.detach().clone() for n, p in self.model_runner.model.named_parameters()}
            torch.save(weights, _dump_folder() / f"engine-{os.getpid()}-{next(broadcasts)}.pt")

    module.WorkerWrap.update_weight = update_weight


def plain_linear(module):
    """vLLM packs each matrix for the CPU once, after which it ignores new weights."""
    dispatch = module.dispatch_cpu_unquantized_gemm

    def dispatch_cpu_unquantized_gemm(layer, remove_weight):
        import torch

        if layer.weight.ndim != 2:
            return dispatch(layer, remove_weight)
        layer.cpu_linear = torch.nn.functional.linear

    module.dispatch_cpu_unquantized_gemm = dispatch_cpu_unquantized_gemm


def dump_batches(module):
    """Keep what the trainer trains on, for the test (OPENRLHF_CPU_DUMP)."""
    if not os.environ.get("OPENRLHF_CPU_DUMP"):
        return
    train, numbers = module.ActorPPOTrainer.training_step, itertools.count()

    def training_step(self, experience, *arguments, **options):
        import torch

        kept = {
            name: getattr(experience, name)
            for name in ("sequences", "attention_mask", "action_mask", "rollout_log_probs", "action_log_probs")
        }
        rank = torch.distributed.get_rank()
        optimizer_steps = self.actor.model.global_steps
        torch.save(
            {**kept, "advantages": experience.advantages, "optimizer_steps": optimizer_steps},
            _dump_folder() / f"batch-{rank}-{next(numbers):04d}.pt",
        )
        return train(self, experience, *arguments, **options)

    module.ActorPPOTrainer.training_step = training_step


def _dump_folder() -> Path:
    folder = Path(os.environ["OPENRLHF_CPU_DUMP"])
    folder.mkdir(parents=True, exist_ok=True)
    return folder
