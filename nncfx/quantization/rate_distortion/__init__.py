"""Rate-distortion compression: models in as few bytes as their accuracy allows."""
