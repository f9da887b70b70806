"""Likelihoods of sites and blocks, with their derivatives by the scores."""
