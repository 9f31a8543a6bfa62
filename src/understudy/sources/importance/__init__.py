"""How much each row of a fixed dataset counts: settings, providers, and the rows' weights."""
