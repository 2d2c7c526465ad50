"""The search of one level: finds a threshold, then the best objective below it."""
