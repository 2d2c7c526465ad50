"""Sites of hooks, and how hooks are installed, stored and applied."""
