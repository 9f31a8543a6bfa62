"""dataset convert, dataset download: other people's files into ours, and ours into theirs."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.learn import Quiet
from understudy.core.errors import ConfigError
from understudy.core.stopping import stoppable
from understudy.core.wording import counted

Source = Annotated[str, typer.Argument(help="A file or folder of any known kind, or the id of a local Minari dataset.")]
Environment = Annotated[str, typer.Option("--env", help="The environment whose action space the data has.")]


def register(app: typer.Typer) -> None:
    app.command()(convert)
    app.command()(download)


def convert(
    source: Source,
    target: Annotated[Path, typer.Argument(help="A new folder (native store), .npz or .hdf5 (D4RL) file.")],
    changes: Annotated[list[str] | None, typer.Argument(help="Transforms, as key=value.")] = None,
    env: Environment = "",
    action_low: Annotated[float | None, typer.Option("--action-low", help="Without --env: least action.")] = None,
    action_high: Annotated[float | None, typer.Option("--action-high", help="Without --env: greatest action.")] = None,
    float32: Annotated[bool, typer.Option("--float32", help="Halve float64 columns; they are kept otherwise.")] = False,
    minari: Annotated[str, typer.Option("--minari", help="Write a Minari dataset of this id under TARGET.")] = "",
    drop_unknown_finals: Annotated[
        bool,
        typer.Option("--drop-unknown-finals", help="Leave out last steps whose next observation was not recorded."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Mend a dataset and write it anew. Example: understudy dataset convert old.hdf5 new time_limit=1000"""
    from understudy.data.transforms import Transforms
    from understudy.run.config import apply_override
    from understudy.run.loading import box_of, space_of_env
    from understudy.run.progress import Reporter
    from understudy.tools.dataset.conversion import convert as run

    words: dict[str, object] = {}
    for change in changes or []:
        if change.startswith("data."):
            raise ConfigError(change, "transforms have no 'data.' here", do=f"Say {change.removeprefix('data.')}.")
        apply_override(words, change)
    with stoppable(f"dataset '{target}'", "Nothing was written."):
        transforms = Transforms.parse(words)
        bounds = box_of(source, action_low, action_high, transforms.episode_steps)
        done = run(
            source,
            target,
            space=space_of_env(env) if env else bounds,
            transforms=transforms,
            precision="float32" if float32 else "source",
            minari_id=minari,
            env=env,
            drop_unknown_finals=drop_unknown_finals,
            reporter=Reporter(quiet=quiet),
        )
    if not quiet:
        size = f"{counted(done.episodes, 'episode')}, {counted(done.steps, 'step')}"
        print(f"{size} written to {done.path}, fingerprint {done.fingerprint}")


def download(
    dataset: Annotated[str, typer.Argument(help="A Minari id, such as D4RL/pen/human-v2.")],
    root: Annotated[Path | None, typer.Option("--root", help="Folder to keep it in; Minari's own if absent.")] = None,
) -> None:
    """Fetch a Minari dataset with Minari's own downloader. Nothing else in this library uses the network."""
    from understudy.data.formats.minari.download import download_minari

    with stoppable(f"dataset '{dataset}'", "The same command fetches it anew."):
        folder = download_minari(dataset, root)
    print(f"downloaded to {folder}")
