"""What every room may use: dtypes, shapes, options and seeds."""
