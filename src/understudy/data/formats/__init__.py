"""Other people's files, in and out."""
