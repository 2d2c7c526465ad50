"""What files say of thin models, and how fresh models become thin."""
