"""Plain data with something wrong in it: values that are gone, of another kind, or somebody else's."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

NOTHING: tuple[object, ...] = (None, [], {}, "", 0, -1, 1.5, True, "x", 10**400, [None], {"a": 1})
"""Values that are not what is expected, wherever they are."""
FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
Place = tuple[str | int, ...]


def places(content: Any, path: Place = ()) -> Iterator[Place]:
    """Where every value of plain data is."""
    named = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in named:
        yield (*path, name)
        yield from places(value, (*path, name))


def owner_of(content: Any, path: Place) -> Any:
    for name in path[:-1]:
        content = content[name]
    return content


def put(content: Any, path: str, value: object) -> None:
    """Set the value at a dotted path."""
    names = tuple(int(name) if name.isdigit() else name for name in path.split("."))
    owner_of(content, names)[names[-1]] = value


@st.composite
def mutations(draw: st.DrawFn, content: dict[str, Any]) -> dict[str, Any]:
    """The same data with a few values wrong."""
    known, other = list(places(content)), deepcopy(content)
    for _ in range(draw(st.integers(1, 3))):
        path, elsewhere = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        try:
            owner = owner_of(other, path)
            if draw(st.booleans()) and isinstance(owner, dict):
                owner.pop(path[-1], None)
            else:
                values = [*NOTHING, owner_of(content, elsewhere)[elsewhere[-1]]]
                owner[path[-1]] = deepcopy(draw(st.sampled_from(values)))
        except (KeyError, IndexError, TypeError):
            continue  # what would have been changed is gone already
    return other
