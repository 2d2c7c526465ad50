"""The description of models in files, and how fresh models are thinned from it."""
