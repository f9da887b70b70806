"""Ascent: by single sites, lines and blocks, for LocPMAP and ICM; and Gibbs sampling and mean field."""
