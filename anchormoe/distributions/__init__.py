"""Predicted distributions in NumPy, adapters for other libraries' distributions, and the scores computed from them."""
