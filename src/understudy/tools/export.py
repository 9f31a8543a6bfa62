"""Export: a policy with its normaliser and memory inside as one file for other runtimes, checked, and its card.

A file is written into a draft, loaded back and compared with the live policy; only then it gets its name. A folder
holds one policy, in one format or in both; an export of another policy replaces it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from safetensors.torch import save as save_tensors

from understudy.core.arguments import as_path, as_text
from understudy.core.drafts import working_folder
from understudy.core.errors import ConfigError, RunError, UnderstudyError, did_you_mean
from understudy.core.facts import Facts, Whole
from understudy.core.files import (
    read_json,
    sha256_bytes,
    sha256_file,
    sync_directory,
    write_bytes,
    write_json,
    write_new,
)
from understudy.core.state import capture
from understudy.nn.deployed import Deployed
from understudy.nn.skill_set import SkillSet
from understudy.run.deployment import DeploymentSettings
from understudy.run.meta import versions
from understudy.run.onnx_policy import CARD
from understudy.run.policies import load_policy
from understudy.run.policy_file import CARD as POLICY_CARD
from understudy.run.policy_file import check_policy
from understudy.run.progress import SILENT, Reporter
from understudy.run.run import Run
from understudy.run.rundir import RunDir
from understudy.tools.card import KIND, PAGE, card_page, make_card, onnx_metadata
from understudy.tools.onnx_file import OPSET, onnx_bytes, onnx_versions, run_onnx
from understudy.tools.parity import ExportError, Parity, Runner, measure_parity
from understudy.tools.portable import Portable
from understudy.tools.torchscript_file import run_torchscript, torchscript_bytes
from understudy.tools.training_facts import training_facts


@dataclass(frozen=True)
class Format:
    """A kind of file: what it is called, how it is written, and how it is read back."""

    file: str
    write: Callable[[Portable, Mapping[str, str]], bytes]
    load: Callable[[bytes, Portable], Runner]
    facts: Callable[[], dict[str, Any]]


FORMATS = {
    "onnx": Format("policy.onnx", onnx_bytes, run_onnx, lambda: {"opset": OPSET, "versions": onnx_versions()}),
    "torchscript": Format("policy.pt", torchscript_bytes, run_torchscript, dict),
}


class Digest(Facts):
    sha256: str


class Check(Facts):
    largest_difference: float


class FileFacts(Digest):
    """What a card says of a file, and the next card says again if the file may stay."""

    format: str
    bytes: Whole
    check: Check


class ExportedFacts(Facts):
    """Of a card, what decides whether files beside it may stay."""

    kind: str
    policy: Digest
    files: dict[str, FileFacts]


OURS = {CARD, PAGE, *(format.file for format in FORMATS.values())}


@final
@dataclass(frozen=True)
class Exported:
    """A file that was written, and what its card says."""

    path: Path
    parity: Parity
    card: dict[str, Any] = field(repr=False)


def export_policy(
    origin: str | Path | Run | Deployed,
    format: str = "onnx",
    checkpoint: str | int = "last",
    out: str | Path | None = None,
    *,
    deployment: Mapping[str, Any] | None = None,
    reporter: Reporter = SILENT,
) -> Exported:
    """Write a policy, or that of a run (`last`, `best`, or a number of updates), as `onnx` or `torchscript`.

    It goes to `out` with its card, or to `export` inside the run directory. `deployment` are facts of the machine for
    the card and the ONNX file, in the place of those in the run's config: control_step, joint_names, joint_stiffness …
    The file was loaded back and agrees with the live policy to 1e-5 of the action's range; otherwise nothing is
    written.
    """
    find_format(format)
    said = None if deployment is None else DeploymentSettings.parse(deployment, "deployment")
    if not isinstance(origin, (str, Path, Run)):  # such as a policy of one's own loop
        policy = check_policy(origin, "export_policy")
        if out is None:
            raise ConfigError("out", "is required where a policy is exported that lies in no run")
        if said is not None:
            said.check_actions(policy.spec.action)
        facts = {"training": {}, "scores": {}, "deployment": {} if said is None else said.told()}
        return write_export(policy, facts, format, as_path(out, "out"), reporter=reporter)
    path = origin.path if isinstance(origin, Run) else as_path(origin, "export_policy")
    if out is None and (path / POLICY_CARD).is_file():
        raise ConfigError("out", "is required where a policy folder is exported: a better policy replaces that folder")
    folder = path / "export" if out is None else as_path(out, "out")
    if out is None:
        RunDir.open(path).check_contained()
    check_folder(folder)
    policy = load_policy(path, checkpoint)
    if said is not None:
        said.check_actions(policy.spec.action)
    return write_export(policy, training_facts(path, str(checkpoint), said), format, folder, reporter=reporter)


def write_export(
    policy: Deployed, facts: Mapping[str, Any], format: str, folder: Path, *, reporter: Reporter = SILENT
) -> Exported:
    """Write any policy; `facts` are a card's `training`, `scores` and, if there are any, `deployment`."""
    kind = find_format(format)
    check_folder(folder)
    if isinstance(policy, SkillSet):
        policy.check_exportable(f"policy as {format}")
    portable = Portable(policy)
    digest = policy_digest(policy)
    with working_folder(folder, "draft") as drafts:
        draft = drafts / kind.file
        metadata = onnx_metadata(portable, digest, facts.get("deployment", {}))
        write_new(draft, _content(kind, portable, metadata, f"policy as {format}"))
        parity = measure_parity(policy, portable, kind.load(draft.read_bytes(), portable), f"policy as {format}")
        told = {"format": format, "bytes": draft.stat().st_size, "sha256": sha256_file(draft), **kind.facts()}
        told |= {"check": parity.to_json(), "torch": versions()["torch"], "understudy": versions()["understudy"]}
        folder.mkdir(exist_ok=True)
        files = {**_kept(folder, kind.file, digest, reporter), kind.file: told}
        draft.replace(folder / kind.file)
        sync_directory(folder)
    card = make_card(portable, digest, files, facts)
    write_bytes(folder / PAGE, card_page(card, portable).encode())
    write_json(folder / CARD, card)
    return Exported(folder / kind.file, parity, card)


def find_format(name: str) -> Format:
    if as_text(name, "format") not in FORMATS:
        raise ConfigError("format", f"no format '{name}'", do=did_you_mean(name, FORMATS))
    return FORMATS[name]


def check_folder(folder: Path) -> None:
    """Refuse to write into a folder of somebody else."""
    if not folder.exists():
        return
    names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(".")} if folder.is_dir() else None
    card = _card_in(folder) if names is not None and CARD in names else {}
    if names is None or (card.get("kind") != KIND if CARD in names else not names <= OURS):
        raise RunError(
            f"folder '{folder}'", "exists already and holds no exported policy", do="Choose another one with --out."
        )


def policy_digest(policy: Deployed) -> str:
    """The sha256 of everything that was learned."""
    tensors = {name: leaf for name, leaf in capture(policy).items() if isinstance(leaf, torch.Tensor)}
    return sha256_bytes(save_tensors(tensors))


def _content(kind: Format, portable: Portable, metadata: Mapping[str, str], where: str) -> bytes:
    try:
        return kind.write(portable, metadata)
    except (RuntimeError, TypeError, ValueError) as error:
        told = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ExportError(where, f"torch cannot write it ({told})") from error


def _kept(folder: Path, replaced: str, digest: str, reporter: Reporter) -> dict[str, Any]:
    """What the old card says of the file in the other format, if it is of the same policy; otherwise it is removed."""
    old = _card_in(folder) if (folder / CARD).is_file() else {}
    kept = {}
    for name in sorted(OURS - {CARD, PAGE, replaced}):
        path = folder / name
        told = old.get("files", {}).get(name, {})
        if path.is_file() and old.get("policy", {}).get("sha256") == digest and told.get("sha256") == sha256_file(path):
            kept[name] = told
        elif path.exists():
            path.unlink()
            reporter.say(f"removed {path}: it was of another policy")
    return kept


def _card_in(folder: Path) -> dict[str, Any]:
    try:
        card = read_json(folder / CARD)
        ExportedFacts.parse(card, str(folder / CARD))
    except UnderstudyError:
        return {}
    return card
