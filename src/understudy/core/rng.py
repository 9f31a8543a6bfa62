"""Named random streams grown from one seed.

Every consumer of randomness owns its stream, so that drawing more from one (more evaluation, another
negative sample) never shifts another. That is what makes reductions and resumes equal to the bit.
"""

import hashlib

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
