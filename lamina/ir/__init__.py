"""The graph: one immutable node, the operations, monoids, and the reference interpreter."""
