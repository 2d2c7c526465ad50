"""What runs data or training through a compressed model."""
