"""Named random streams grown from one seed.

Every consumer of randomness owns its stream, so that drawing more from one (more evaluation, another
negative sample) never shifts another. That is what makes reductions and resumes equal to the bit. Other people's code
may draw from the global generators of the process instead; where that must shift nobody either, it gets its own.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derived_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed that depends on every word and is the same on any day, in any process."""
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, name: str) -> torch.Generator:
    """The generator called `name` ("init", "sample", "dropout", …) of the run with this seed."""
    generator = torch.Generator()
    generator.manual_seed(derived_seed(seed, name))
    return generator


def simulator_seed(seed: int) -> int:
    """What a simulator is seeded with: many take 32 bits and a sign, and fail on, or cut off, whatever is beyond."""
    return seed % 2**31


@contextmanager
def own_global_generators(seed: int) -> Iterator[None]:
    """Whoever draws from the global generators of Python, NumPy or torch in here draws from `seed`; afterwards they
    stand where they stood."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    random.seed(derived_seed(seed, "python"))
    np.random.seed(derived_seed(seed, "numpy") % 2**32)
    torch.default_generator.manual_seed(derived_seed(seed, "torch"))
    if cuda:
        torch.cuda.manual_seed_all(derived_seed(seed, "torch"))
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
