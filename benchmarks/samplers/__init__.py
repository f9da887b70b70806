"""Error of marginals against seconds, for samplers of this library and others, on models with exact answers."""
