"""The configs that come with the library, as their first line says to run them."""

from understudy.run.packaged import read_packaged


def command_words(config: str) -> list[str]:
    """What follows `# understudy train <config>`: a preset names a task there, and where its data goes."""
    first, _, _ = read_packaged(config).partition("\n")
    opening = f"# understudy train {config}"
    assert (first + " ").startswith(opening + " "), first
    return first.removeprefix(opening).split()
