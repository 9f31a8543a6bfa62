"""How much memory there can be is known before somebody asks for more."""

import resource

import pytest

from processes import say_in_a_bounded_fork
from understudy.core.errors import ConfigError
from understudy.core.machine_memory import check_room, machine_memory, told_bytes


def test_a_limit_on_the_process_counts() -> None:
    def limit() -> str:
        resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[0] - 4096,) * 2)
        return f"{machine_memory() == resource.getrlimit(resource.RLIMIT_AS)[0]}"

    assert 1 << 28 < machine_memory() < 1 << 50
    assert say_in_a_bounded_fork(limit, 1 << 20, 5) == "True"


def test_what_needs_more_is_told() -> None:
    check_room("here", "nothing", 0, "Go on.")
    check_room("here", "everything", machine_memory(), "Go on.")
    with pytest.raises(
        ConfigError, match=r"^here: a cat would need more memory than there is: got 1e\+03 PB, expected at "
    ):
        check_room("here", "a cat", 10**18, "Take a mouse.")


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (40_002_400_064, "40 GB"), (10**13, "10 TB")],
)
def test_bytes_as_people_say_them(count: int, told: str) -> None:
    assert told_bytes(count) == told
