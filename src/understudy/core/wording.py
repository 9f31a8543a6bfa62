"""Numbers of things as people write them."""


def counted(count: int, thing: str) -> str:
    """1 episode, 2 episodes, 1,000 episodes."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")
