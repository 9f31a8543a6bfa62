"""The card beside an exported policy: `card.json` for machines, `card.md` for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from understudy.core.spec import ACTION_MASK, Box, space_json
from understudy.tools.portable import Port, Portable

KIND = "understudy exported policy"
FORMAT = 2
PAGE = "card.md"
NORMALISER = "Inside: give raw observations, as the environment emits them."


def make_card(
    portable: Portable, digest: str, files: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything there is to know of an exported policy; `files` by their names."""
    policy = portable.policy
    return {
        "kind": KIND,
        "format": FORMAT,
        "policy": {
            "kind": policy.kind,
            "settings": policy.settings.model_dump(mode="json"),
            "sha256": digest,
        },
        "files": {name: dict(told) for name, told in files.items()},
        "inputs": [port.to_json() for port in portable.inputs],
        "outputs": [port.to_json() for port in portable.outputs],
        "observation": {
            name: {"shape": list(group.shape), "recorded_as": group.dtype, "segments": _segments(portable, name)}
            for name, group in portable.groups.items()
        },
        "action": _action(portable),
        "memory": [
            {"input": f"carry_{number}", "output": f"next_carry_{number}", "initial": _initial(part)}
            for number, part in enumerate(portable.carried)
        ],
        "normaliser": NORMALISER,
        "deployment": {},
        **facts,
    }


def _segments(portable: Portable, group: str) -> list[dict[str, Any]]:
    """The named columns of a group, from the left to the right: a JSON object has no order."""
    named = portable.policy.spec.segments.get(group, {})
    ordered = sorted(named.items(), key=lambda entry: entry[1])
    return [{"name": name, "start": start, "stop": stop} for name, (start, stop) in ordered]


def _action(portable: Portable) -> dict[str, Any]:
    """The space; `dtype` is what the file gives, whatever the environment calls its own."""
    space = portable.policy.spec.action
    recorded = {"recorded_as": space.dtype} if isinstance(space, Box) else {}
    return {**space_json(space), **recorded, "dtype": portable.outputs[0].dtype, "masked": portable.policy.spec.masked}


def onnx_metadata(portable: Portable, digest: str, deployment: Mapping[str, Any]) -> dict[str, str]:
    """What an ONNX file says of itself: names in order, and facts of the machine; several of one kind with commas."""
    names = [
        f"{group}.{segment['name']}"
        for group in portable.groups
        for segment in _segments(portable, group) or [{"name": ""}]
    ]
    told = {"policy_sha256": digest, "observation_names": [name.removesuffix(".") for name in names]}
    machine = {name: value for name, value in deployment.items() if name != "notes"}
    return {name: _plain(value) for name, value in {**told, **machine, **deployment.get("notes", {})}.items()}


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _initial(part: Tensor) -> object:
    """What is remembered at the start of an episode [layers, units]."""
    return part.tolist() if bool(part.any()) else "zeros"


def card_page(card: Mapping[str, Any], portable: Portable) -> str:
    """The card for people, in Markdown."""
    training = card["training"]
    algorithm = training.get("algorithm", {}).get("name", "")
    title = f"Policy: {algorithm} on {training['env']}" if algorithm and training.get("env") else "Policy"
    parts = [
        f"# {title}",
        _about(card, portable),
        "## Files\n\n" + _table(("file", "format", "bytes", "sha256", "largest difference"), _file_rows(card)),
        "The largest difference from the live policy was measured on random inputs when the file was written, in units "
        "of the action's range.",
        "## Inputs and outputs\n\n" + _ports(portable),
        _notes(card, portable),
        _machine(card["deployment"]),
        "## How to run it\n\n" + "\n\n".join(_how_to(card, portable)),
        "## Training\n\n" + _table(("what", "value"), _training_rows(training)),
        _scores(card["scores"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(card: Mapping[str, Any], portable: Portable) -> str:
    memory = f" It remembers: {len(portable.carried)} carry tensor(s) go in and come out." if portable.carried else ""
    return (
        f"A greedy {card['policy']['kind'].replace('_', ' ')}. Normaliser, action range and clamp"
        f"{', obedience to masks' if card['action']['masked'] else ''} are inside.{memory}"
    )


def _file_rows(card: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
    return [
        (f"`{name}`", told["format"], f"{told['bytes']:,}", f"`{told['sha256']}`", f"{_worst(told):.2g}")
        for name, told in card["files"].items()
    ]


def _worst(told: Mapping[str, Any]) -> float:
    return float(told["check"]["largest_difference"])


def _ports(portable: Portable) -> str:
    sides = [("in", port) for port in portable.inputs] + [("out", port) for port in portable.outputs]
    rows = [(side, f"`{port.name}`", _shape(port), port.dtype, _meaning(port, portable)) for side, port in sides]
    return _table(("", "name", "shape", "dtype", "is"), rows)


def _shape(port: Port) -> str:
    return f"[{', '.join(['batch', *map(str, port.shape)])}]"


def _meaning(port: Port, portable: Portable) -> str:
    space = portable.policy.spec.action
    if port.name in portable.groups:
        return "observation group, raw"
    if port.name == "action":
        return f"environment units, {space.describe()}" if isinstance(space, Box) else f"choice, {_counts(portable)}"
    if port.name.startswith("next_"):
        return f"give it as `{port.name.removeprefix('next_')}` at the next step"
    return "memory" if port.name.startswith("carry_") else "True where an action is legal"


def _counts(portable: Portable) -> str:
    return portable.policy.spec.action.describe() if not portable.outputs[0].shape else "one of each factor"


def _notes(card: Mapping[str, Any], portable: Portable) -> str:
    notes = [f"- Normaliser. {NORMALISER}"]
    for part in card["memory"]:
        told = part["initial"] if part["initial"] == "zeros" else "the values in card.json"
        notes.append(f"- Memory. `{part['input']}` starts each episode with {told}.")
    for group, told in card["observation"].items():
        named = [f"`{one['name']}` {one['start']}:{one['stop']}" for one in told["segments"]]
        notes += [f"- Columns of `{group}`: {', '.join(named)}."] if named else []
    if portable.policy.spec.masked:
        notes.append("- Masks. In each row at least one action must be legal: a file cannot refuse, it answers anyhow.")
    return "\n".join(notes)


def _how_to(card: Mapping[str, Any], portable: Portable) -> list[str]:
    written = {told["format"]: name for name, told in card["files"].items()}
    makers = {"onnx": onnx_snippet, "torchscript": torchscript_snippet}
    return [f"```python\n{makers[kind](name, portable)}```" for kind, name in sorted(written.items())]


def _machine(deployment: Mapping[str, Any]) -> str:
    """What is known of the machine."""
    if not deployment:
        return ""
    units = {"control_step": " s"}
    known = {**deployment, **deployment.get("notes", {})}
    rows = [(f"`{name}`", f"{_plain(value)}{units.get(name, '')}") for name, value in known.items() if name != "notes"]
    return "## The machine\n\n" + _table(("what", "value"), rows)


def _training_rows(training: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, value in training.items():
        if isinstance(value, Mapping):
            rows += [(f"{name}.{key}", f"`{inner}`") for key, inner in value.items()]
        else:
            rows.append((name, f"`{value}`"))
    return rows


def _scores(scores: Mapping[str, Mapping[str, Any]]) -> str:
    if not scores:
        return ""
    rows = [
        (
            name,
            f"{line['updates']:,}",
            f"{line['return_mean']:.2f}",
            f"{line['return_low']:.2f} to {line['return_high']:.2f}",
            str(line["episodes"]),
            f"{line['score']:.2f}" if "score" in line else "",
        )
        for name, line in scores.items()
    ]
    heads = ("evaluation", "updates", "mean return", "95 % interval", "episodes", "score")
    mine = "\n\n`this` is the exported policy." if "this" in scores else ""
    return "## Scores\n\n" + _table(heads, rows) + mine


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def onnx_snippet(file: str, portable: Portable) -> str:
    """One step from made-up observations, with onnxruntime; run it where the file is."""
    fed = [f'    "{port.name}": {_numpy(port)},\n' for port in portable.inputs]
    after = 'inputs |= {f"carry_{i}": part for i, part in enumerate(carry)}  # for the next step of the episode\n'
    return (
        "import numpy as np\nimport onnxruntime\n\n"
        f'session = onnxruntime.InferenceSession("{file}", providers=["CPUExecutionProvider"])\n'
        f"batch = 1\ninputs = {{\n{''.join(fed)}}}\n"
        f"{'action, *carry' if portable.carried else '(action,)'} = session.run(None, inputs)\n"
        f"{after if portable.carried else ''}print(action)\n"
    )


def torchscript_snippet(file: str, portable: Portable) -> str:
    """The same with torch."""
    given = ", ".join(_torch(port) for port in portable.inputs[: len(portable.observed)])
    call = f"action, *carry = module({given}, *carry)" if portable.carried else f"action = module({given})"
    start = "carry = module.initial(batch)  # at the start of an episode\n" if portable.carried else ""
    return (
        f'import torch\n\nmodule = torch.jit.load("{file}")\nbatch = 1\n{start}'
        f"with torch.no_grad():\n    {call}\nprint(action)\n"
    )


def _numpy(port: Port) -> str:
    made = "np.ones" if port.name == ACTION_MASK else "np.zeros"
    shape = ", ".join(["batch", *map(str, port.shape)]) if port.shape else "batch,"
    return f"{made}(({shape}), np.{_dtype(port)})"


def _torch(port: Port) -> str:
    made = "torch.ones" if port.name == ACTION_MASK else "torch.zeros"
    return f"{made}({', '.join(['batch', *map(str, port.shape)])}, dtype=torch.{port.dtype})"


def _dtype(port: Port) -> str:
    return "bool_" if port.dtype == "bool" else port.dtype
