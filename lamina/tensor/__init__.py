"""What the user holds: the tensor handle and the functions on it."""
