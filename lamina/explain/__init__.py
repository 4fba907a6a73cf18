"""Looking inside: pages and tables made from what the compiler records."""
