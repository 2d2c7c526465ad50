"""Base classes of all algorithms: builder, controller, schedulers, losses, statistics."""
