"""Statistics of label maps: votes, conditional probabilities, scores."""
