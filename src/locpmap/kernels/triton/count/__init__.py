"""What is computed from label maps: votes, conditional probabilities, scores."""
