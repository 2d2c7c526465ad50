"""The search of one level: find a threshold, then the best objective beyond it."""
