"""Workers of a search on a Ray cluster: each is one task of three strings, and its answer is one."""

from understudy.core.errors import ConfigError, did_you_mean
from understudy.tools.experiments.on_ray import HERE as OWN
from understudy.tools.experiments.on_ray import RayLauncher, refused, resources
from understudy.tools.tuning.plan import Plan
from understudy.tools.tuning.worker import work

HERE, RAY = "here", "ray"


def work_on_ray(folder: str, search: str, words: str) -> str:
    """What a worker of Ray does: paths mean what they do to whoever asked."""
    return refused(folder) or work(search, words)


def ray_for(on: str, plan: Plan, cores: int | None = None) -> RayLauncher | None:
    """The cluster that `on` names, connected: ray (one of our own), ray=HOST:PORT, ray=auto. None where workers are to
    be processes of this machine."""
    kind, equals, address = on.partition("=")
    if kind not in (HERE, RAY) or (equals and not (kind == RAY and address)):
        raise ConfigError("--on", "no place for a search", got=f"'{on}'", do=did_you_mean(kind, (HERE, RAY)))
    if kind == HERE:
        return None
    asked = resources(plan.base.to_yaml())
    return RayLauncher(address or OWN, cores, task=work_on_ray, needs=lambda words: asked)
