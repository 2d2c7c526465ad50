"""What a forward calls: modules, functions, their tensors, and the inputs it is given."""
