"""What is done with datasets before anything is learned: inspect, check, convert, corrupt."""
