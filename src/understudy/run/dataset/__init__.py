"""What is done with datasets before anything is learned: load, inspect, check, convert."""
