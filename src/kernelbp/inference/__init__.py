"""One update, the schedules that repeat it, and the beliefs it ends in."""
