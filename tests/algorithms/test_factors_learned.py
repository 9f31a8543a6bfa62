"""PPO learns to choose several things at once."""

from rollouts import build_ppo
from understudy import evaluate_policy
from understudy.envs.vector.local import LocalVectorEnv
from understudy.sources.rollout import RolloutSource

THRUSTERS, COUNT, UPDATES = "UnderstudyWindyThrusters-v0", 16, 30


def test_two_thrusters_learn_to_work_together() -> None:
    world = LocalVectorEnv(THRUSTERS, COUNT)
    role = {"sees": ["privileged"], "hidden": [32, 32]}
    settings = {"gamma": 0.95, "learning_rate": 3e-3, "target_kl": 0.02}
    ppo = build_ppo(world.spec, COUNT, UPDATES, actor=role, critic=role, **settings)
    source = RolloutSource.build(world, ppo.policy, 50, 0)
    before = evaluate_policy(ppo.policy, THRUSTERS, 20, 0).mean
    for _ in range(UPDATES):
        ppo.update(source.next(ppo.policy))
    after = evaluate_policy(ppo.policy, THRUSTERS, 20, 0).mean
    assert before < -60
    assert after > before / 3
