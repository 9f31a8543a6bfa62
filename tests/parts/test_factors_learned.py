"""PPO learns to choose several things at once."""

from understudy import evaluate_policy
from understudy.core.rng import stream
from understudy.envs.vector.local import LocalVectorEnv
from understudy.nn.exploring_policy import ExplorerSettings, ExploringPolicy
from understudy.nn.value_network import ValueNetwork, ValueSettings
from understudy.parts.ppo.settings import PPOSettings
from understudy.parts.ppo.update import Proximal
from understudy.sources.rollout import RolloutSource

THRUSTERS, COUNT, UPDATES = "UnderstudyWindyThrusters-v0", 16, 30


def test_two_thrusters_learn_to_work_together() -> None:
    world = LocalVectorEnv(THRUSTERS, COUNT)
    eyes = {"sees": ["privileged"], "trunk": {"hidden": [32, 32]}}
    policy = ExploringPolicy(world.spec, ExplorerSettings.parse(eyes), stream(0, "policy"))
    value = ValueNetwork(world.spec, ValueSettings.parse(eyes), stream(0, "value"))
    settings = PPOSettings.parse({"gamma": 0.95, "learning_rate": 3e-3, "target_kl": 0.02})
    proximal = Proximal.of(settings, policy, value, stream(0, "shuffle"), COUNT, updates=UPDATES)
    source = RolloutSource.build(world, policy, 50, 0)
    before = evaluate_policy(policy, THRUSTERS, 20, 0).mean
    for _ in range(UPDATES):
        proximal.update(source.next(policy))
    after = evaluate_policy(policy, THRUSTERS, 20, 0).mean
    assert before < -60
    assert after > before / 3
