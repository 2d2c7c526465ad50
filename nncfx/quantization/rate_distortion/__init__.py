"""Models in as few bytes as their accuracy allows: rate, distortion and the search for both."""
