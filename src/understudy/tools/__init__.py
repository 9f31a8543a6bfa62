"""Tools: they start runs through `run`, and read run directories and nothing else."""
