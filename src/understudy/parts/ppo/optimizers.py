"""Who trains which parameters of PPO's networks."""

from torch import nn

from understudy.nn.actor import Actor
from understudy.nn.estimator import Estimator
from understudy.nn.value_network import ValueNetwork
from understudy.parts.optim import Adam, OptimizerSettings


def build_optimizers(policy: Actor, value: ValueNetwork, weight_decay: float) -> dict[str, Adam]:
    """Of `policy` and `value`, or of both together (`all`) where they share parameters."""
    shared = bool({id(p) for p in policy.parameters()} & {id(p) for p in value.parameters()})
    networks = {"all": nn.ModuleList([policy, value])} if shared else {"policy": policy, "value": value}
    settings = OptimizerSettings(kind="adamw" if weight_decay else "adam", weight_decay=weight_decay)
    return {name: Adam.over(_trained(network), settings) for name, network in networks.items()}


def _trained(network: nn.Module) -> list[nn.Parameter]:
    """All parameters but those of an estimator that learns by itself."""
    alone = [part for part in network.modules() if isinstance(part, Estimator) and not part.learns_with_policy]
    others = {id(parameter) for part in alone for parameter in part.parameters()}
    return [parameter for parameter in network.parameters() if id(parameter) not in others]
