"""What every room may use: dtypes, shapes, options, seeds and caches."""
