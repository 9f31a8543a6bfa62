"""Environments in which an action is the choice of a skill: what a gate is trained in.

The skills are frozen and act greedily, each step of the gate is one step of the environment. What they remember begins
anew where an episode does, for that environment alone, and is saved and loaded with the environments. A gate is judged
and filmed as what it will be: the set with the gate as its selector, in the environment itself.
"""

from collections.abc import Mapping
from typing import final

from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import CheckpointError, ConfigError, told_with
from understudy.core.protocols import Policy
from understudy.core.rng import stream
from understudy.core.spec import Discrete, Spec
from understudy.envs.vector.contract import Restartable, Resumable, Step, VectorEnv, check_action, resumes_exactly
from understudy.envs.vector.step_timeout import Waiting
from understudy.nn.deployed import Deployed
from understudy.nn.skill import restarted
from understudy.nn.skill_set import SkillSet
from understudy.run.env_settings import EnvSettings
from understudy.run.frozen_policy import FrozenPolicySettings
from understudy.run.policies import load_policy
from understudy.run.warm_start import check_same, policy_fingerprint

INNER, CARRY, DRAWS = "environments.", "skills.", "draws"
"""What names of saved tensors begin with: of the environments themselves, and of what skills remember."""


@final
class SkillVectorEnv:
    """N environments whose actions are numbers of skills [N]."""

    def __init__(self, envs: VectorEnv, skills: SkillSet, name: str) -> None:
        self._envs, self._skills, self._where = envs, skills, f"environment '{name}'"
        if not skills.spec.fits(envs.spec):
            raise ConfigError(
                "env.skills",
                f"do not fit environment '{name}'",
                got=skills.spec.describe(),
                expected=envs.spec.describe(),
            )
        self._spec = Spec(envs.spec.observation, Discrete(skills.count), segments=skills.spec.segments)
        self._obs: Obs = {}
        self._carry = skills.initial(envs.count)
        self._draws = stream(0, "skills")

    @property
    def count(self) -> int:
        return self._envs.count

    @property
    def spec(self) -> Spec:
        return self._spec

    def reset(self, seed: int) -> Obs:
        self._draws = stream(seed, "skills")
        self._carry = self._skills.initial(self.count)
        self._obs = self._envs.reset(seed)
        return self._shown(self._obs)

    def step(self, action: Tensor) -> Step:
        """One step of the chosen skills [N]."""
        check_action(action.numpy(force=True), self._spec.action, self.count, self._where)
        acted, carry = self._skills.act_chosen(self._obs, action, self._carry, greedy=True, rng=self._draws)
        step = self._envs.step(acted)
        begins = (step.terminated | step.truncated | ~step.valid).to(acted.device)
        self._carry = restarted(carry, self._skills, begins)
        self._obs = step.obs
        shown, final = self._shown(step.obs), self._shown(step.final_obs)
        return Step(shown, final, step.reward, step.terminated, step.truncated, step.valid, step.extras)

    def _shown(self, obs: Obs) -> Obs:
        """Without masks of the skills' own actions, which are no masks of choices."""
        return {name: values for name, values in obs.items() if name in self._spec.observation}

    @property
    def exact(self) -> bool:
        return resumes_exactly(self._envs)

    @property
    def restartable(self) -> bool:
        return not isinstance(self._envs, Restartable) or self._envs.restartable

    def waiting(self) -> list[int]:
        """Environments that have not answered."""
        return self._envs.waiting() if isinstance(self._envs, Waiting) else []

    def save(self) -> dict[str, Tensor]:
        inner = self._envs.save() if isinstance(self._envs, Resumable) else {}
        if not inner:
            return {}
        carried = {f"{CARRY}{number}": part.clone() for number, part in enumerate(self._carry)}
        return {**{f"{INNER}{name}": part for name, part in inner.items()}, **carried, DRAWS: self._draws.get_state()}

    def load(self, saved: Mapping[str, Tensor]) -> Obs:
        names = [f"{CARRY}{number}" for number in range(len(self._carry))]
        if not isinstance(self._envs, Resumable) or not {DRAWS, *names} <= saved.keys():
            raise CheckpointError(self._where, "cannot be put where it stood")
        self._obs = self._envs.load({name.removeprefix(INNER): part for name, part in saved.items() if INNER in name})
        device = self._skills.action_low.device
        self._carry = tuple(saved[name].to(device, copy=True) for name in names)
        self._draws.set_state(saved[DRAWS].cpu())
        return self._shown(self._obs)

    def close(self) -> None:
        self._envs.close()


def load_skills(named: FrozenPolicySettings) -> SkillSet:
    """The skills a gate is trained over; they must have the fingerprint, if one is given."""
    with told_with("env.skills.path"):
        policy = load_policy(named.path, named.checkpoint).requires_grad_(False).train(False)
    if not isinstance(policy, SkillSet):
        raise ConfigError(
            "env.skills.path",
            f"'{named.path}' is no skill set",
            got=policy.kind,
            expected=SkillSet.kind,
            do="Make one: understudy skills.",
        )
    check_same(policy_fingerprint(policy), named.fingerprint, f"env.skills '{named.path}'", "env.skills.fingerprint")
    return policy


def sealed_skills(env: EnvSettings | None) -> EnvSettings | None:
    """With the fingerprint of its skills."""
    if env is None or env.skills is None:
        return env
    found = policy_fingerprint(load_skills(env.skills))
    return env.model_copy(update={"skills": env.skills.model_copy(update={"fingerprint": found})})


def as_it_acts(policy: Policy, env: EnvSettings) -> Policy:
    """Who plays in the environment itself: the policy, or where that is a gate, the skills that it chooses among."""
    if env.skills is None:
        return policy
    if not isinstance(policy, Deployed):
        raise ConfigError("env.skills", "only a policy of ours can choose among skills", got=type(policy).__name__)
    return load_skills(env.skills).chosen_by(policy)


def with_skills(envs: VectorEnv, env: EnvSettings) -> VectorEnv:
    """Environments whose actions are choices of skills, where there are any."""
    if env.skills is None:
        return envs
    try:
        return SkillVectorEnv(envs, load_skills(env.skills), env.id)
    except BaseException:
        envs.close()
        raise
