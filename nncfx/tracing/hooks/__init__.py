"""Where hooks stand, and how they are installed, stored and applied."""
