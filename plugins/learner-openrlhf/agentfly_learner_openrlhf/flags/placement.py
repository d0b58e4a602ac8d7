"""Which GPUs each part of a run takes, read off OpenRLHF's own namespace as ``train_ppo_ray.train`` does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class Role:
    """A part of the run. ``shares`` names the role whose GPUs it uses, instead of ``gpus`` of its own."""

    role: str
    gpus: int
    processes: int
    shares: str | None = None

    @property
    def own(self) -> int:
        """GPUs that no role before it has."""
        return 0 if self.shares else self.gpus


@dataclass(frozen=True)
class Placement:
    """GPUs a role, on a cluster of ``nodes`` with ``gpus_per_node`` each."""

    nodes: int
    gpus_per_node: int
    roles: tuple[Role, ...]

    @property
    def gpus(self) -> int:
        """GPUs that Ray must have."""
        return sum(role.own for role in self.roles)

    def plain(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {
            "nodes": self.nodes,
            "gpus_per_node": self.gpus_per_node,
            "gpus": self.gpus,
            "roles": [asdict(role) for role in self.roles],
        }


def placement_of(args: SimpleNamespace, *, nodes: int, gpus_per_node: int) -> Placement:
    """The placement groups and actors that OpenRLHF makes from these arguments."""

    def world(part: SimpleNamespace) -> int:
        return int(part.num_nodes * part.num_gpus_per_node)

    together = args.train.colocate_all
    roles = [Role("policy", world(args.actor), world(args.actor))]
    if args.algo.kl.init_coef > 0:
        shares = "policy" if together or args.train.colocate_actor_ref else None
        roles.append(Role("reference", world(args.ref), world(args.ref), shares))
    if args.critic.model_name_or_path:
        roles.append(Role("critic", world(args.critic), world(args.critic), "policy" if together else None))
    if not args.reward.remote_url:
        shares = "policy" if together else "critic" if args.train.colocate_critic_reward else None
        roles.append(Role("reward", world(args.reward), world(args.reward), shares))
    engines = args.vllm.num_engines or 0
    shares = "policy" if together and not args.train.async_enable else None
    roles.append(Role("engines", engines * args.vllm.tensor_parallel_size, engines, shares))
    return Placement(nodes, gpus_per_node, tuple(roles))
