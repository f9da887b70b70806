"""Likelihoods of sites and blocks, with their derivatives with respect to the scores."""
