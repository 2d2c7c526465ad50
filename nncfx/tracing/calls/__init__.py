"""The calls of a forward: modules, functions, tensors and inputs."""
