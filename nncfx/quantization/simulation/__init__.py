"""What integer kernels compute, simulated bit by bit."""
