"""dataset corrupt: a copy of a dataset with some rows made wrong on purpose, to see what a learner makes of it."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.dataset_convert import Environment, Source
from understudy.cli.learn import Quiet
from understudy.core.errors import ConfigError
from understudy.core.stopping import stoppable
from understudy.core.wording import counted


def register(app: typer.Typer) -> None:
    app.command()(corrupt)


def corrupt(
    source: Source,
    target: Annotated[Path, typer.Argument(help="A new folder (native store), .npz or .hdf5 (D4RL) file.")],
    settings: Annotated[list[str], typer.Argument(help="kind=… share=…, and strength=… seed=… where wanted.")],
    env: Environment = "",
    minari: Annotated[str, typer.Option("--minari", help="Write a Minari dataset of this id under TARGET.")] = "",
    quiet: Quiet = False,
) -> None:
    """Make a share of the rows wrong. Example: understudy dataset corrupt data wrong kind=reward_flip share=0.3

    Kinds: reward_noise, reward_flip, reward_swap, reward_attack, action_noise, action_replace, dynamics_shuffle.
    """
    from understudy.data.corruption import Corruption
    from understudy.data.transforms import Transforms
    from understudy.run.config import apply_override
    from understudy.run.loading import space_of_env
    from understudy.run.progress import Reporter
    from understudy.tools.dataset.corrupting import corrupt_file

    words: dict[str, object] = {}
    for setting in settings:
        apply_override(words, setting)
    for word in words:
        if word in Transforms.model_fields:
            raise ConfigError(word, "is a transform", do="Mend the data first, with understudy dataset convert.")
    with stoppable(f"dataset '{target}'", "Nothing was written."):
        done, told = corrupt_file(
            source,
            target,
            Corruption.parse(words),
            space=space_of_env(env) if env else None,
            minari_id=minari,
            env=env,
            reporter=Reporter(quiet=quiet),
        )
    if not quiet:
        size = f"{counted(done.episodes, 'episode')}, {counted(done.steps, 'step')}"
        print(f"{told}\n{size} written to {done.path}, fingerprint {done.fingerprint}")
