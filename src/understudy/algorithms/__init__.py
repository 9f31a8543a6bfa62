"""One file per algorithm; a file here, or an entry point `understudy.algorithms` of another package, is found.

Such a module offers `Config` (its settings, with a `name`), `needs(config)`, which says what it learns from and which
actions it knows, and `build(config, context)`.
"""

from typing import Any, Protocol, cast

from understudy.core.plugins import Plugins, authored, blame
from understudy.core.protocols import Algorithm, BuildContext, Needs
from understudy.core.settings import Settings


class AlgorithmModule(Protocol):
    __doc__: str | None
    Config: type[Settings]

    def needs(self, config: Settings) -> Needs: ...

    def build(self, config: Settings, context: BuildContext) -> Algorithm[Any]: ...


PLUGINS = Plugins(
    "understudy.algorithms",
    __name__,
    tuple(__path__),
    "algo.name",
    "algorithm",
    tag="name",
    calls=(("needs", ("config",)), ("build", ("config", "context"))),
)


def algorithm_names() -> dict[str, str]:
    """Name to the module that holds it; our own names cannot be taken over by other packages."""
    return PLUGINS.names()


def find_algorithm(name: str) -> AlgorithmModule:
    """The module of an algorithm, or an error with the closest name."""
    return cast(AlgorithmModule, PLUGINS.find(name, ("Config", "needs", "build")))


def needs_of(config: Settings) -> Needs:
    """What an algorithm asks of a run, by its settings."""
    name = config.model_dump()["name"]
    module = find_algorithm(name)
    with authored(algorithm_names()[name]):
        needs: object = module.needs(config)
    if not isinstance(needs, Needs):
        blame(
            algorithm_names()[name],
            f"`needs` gives {type(needs).__name__}",
            "understudy.core.protocols.Needs",
            module.needs,
        )
    return needs
