"""Context coding of integers as binary decisions with odds predicted from their neighbours."""
