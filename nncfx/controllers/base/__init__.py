"""What every algorithm shares: builder, controller, schedulers, losses, statistics."""
