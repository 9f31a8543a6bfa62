"""Teachers that say what they would do, and the rows they said it of."""
