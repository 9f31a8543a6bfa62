"""Former columns: what earlier versions of an environment showed, and a later one leaves out."""

WORLD_BODY = (*range(45, 55), *range(185, 191), *range(269, 275), *range(292, 298))
"""Of humanoids up to -v4: inertia, velocity, actuator forces and contact forces of the ground itself."""

FORMER_COLUMNS: dict[str, tuple[int, tuple[int, ...]]] = {
    "Ant-v4": (111, tuple(range(27, 111))),  # all contact forces
    "Ant-v5": (111, tuple(range(27, 33))),  # contact forces on the ground
    "Humanoid-v5": (376, WORLD_BODY),
    "HumanoidStandup-v5": (376, WORLD_BODY),
    "InvertedDoublePendulum-v5": (11, (9, 10)),  # constraint forces of joints that cannot be blocked
    "Reacher-v5": (11, (10,)),  # the height of a finger that moves in a plane
}
"""Id to the former width, and the columns of it that are gone; the rest is equal to the bit, in the same order."""


def former_columns(env_id: str, width: int) -> tuple[int, ...]:
    """The columns of a `width` wide observation that only earlier versions of this environment have."""
    former, gone = FORMER_COLUMNS.get(env_id, (0, ()))
    return gone if width == former else ()
