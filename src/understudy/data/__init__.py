"""Data at rest: episodes, datasets, files, recipes, reference scores."""
