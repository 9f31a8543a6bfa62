"""A run from birth to rest: config, build, loop, evaluation, checkpoint, directory."""
