"""What came of runs as one page that people send to each other, and as tables: `understudy report`, `us.report`."""
