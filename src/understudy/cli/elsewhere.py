"""Where the runs of an experiment run: on this machine, on Ray, or on Slurm."""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from understudy.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from understudy.tools.experiments.experiment import Experiment
    from understudy.tools.experiments.launcher import Launcher

HERE, RAY, SLURM = "here", "ray", "slurm"
On = Annotated[
    str, typer.Option("--on", help="Where runs run: here, ray (ray=HOST:PORT: an existing cluster), or slurm.")
]
SlurmOptions = Annotated[
    list[str] | None, typer.Option("--slurm", help="An option of sbatch: partition=gpu, time=08:00:00, mem=8G …")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Of --on slurm: write the script, and submit nothing.")]


class Place(NamedTuple):
    """What was said of it."""

    on: str = HERE
    slurm: list[str] | None = None
    dry_run: bool = False

    def check(self) -> None:
        """It is one, and all that was said is about it."""
        kind, equals, address = self.on.partition("=")
        if kind not in (HERE, RAY, SLURM) or (equals and not (kind == RAY and address)):
            raise ConfigError("--on", "no such place", got=f"'{self.on}'", do=did_you_mean(kind, (HERE, RAY, SLURM)))
        if self.on != SLURM and (self.slurm or self.dry_run):
            raise ConfigError("--slurm" if self.slurm else "--dry-run", "is for --on slurm", got=f"--on {self.on}")


def work_off(
    experiment: "Experiment", jobs: int | None, place: Place, *, until_decided: bool = False, quiet: bool = False
) -> bool:
    """Have the runs of an experiment done; False if they are sent, and there is nothing to show yet."""
    from understudy.run.progress import Reporter

    reporter = Reporter(quiet=quiet)
    place.check()
    if place.on == SLURM:
        from understudy.tools.experiments.on_slurm import options_from, send

        if until_decided:
            what = "looks at results between groups of seeds, and --on slurm does not wait for them"
            raise ConfigError("--until-decided", what, do="Use --on ray, or send groups of seeds yourself.")
        experiment.say_notices(reporter)
        print(send(experiment.plan, options_from(place.slurm or []), jobs, reporter, dry_run=place.dry_run))
        return False
    jobs, launcher = _launched(experiment, jobs, place.on)
    experiment.run(jobs, until_decided=until_decided, reporter=reporter, launcher=launcher)
    return True


def _launched(experiment: "Experiment", jobs: int | None, on: str) -> "tuple[int | None, Launcher | None]":
    """How many runs at once, and who launches them; what is None, this machine knows by itself."""
    if on == HERE:
        return jobs, None
    from understudy.tools.experiments import on_ray

    launcher = on_ray.RayLauncher(on.partition("=")[2] or on_ray.HERE)
    threads = max((run.config.threads for run in experiment.plan.runs), default=1)
    return jobs or launcher.room(threads), launcher
