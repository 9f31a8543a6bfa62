"""Which rows of a dataset come next, and batches of them."""
