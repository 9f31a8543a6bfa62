"""A package of somebody else: an algorithm, a source and an objective that Understudy finds by their entry points."""
