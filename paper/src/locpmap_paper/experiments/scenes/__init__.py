"""Scene labeling on Stanford Background."""
