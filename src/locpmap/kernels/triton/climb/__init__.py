"""Coordinate ascent (climbs) by sites, lines and blocks for LocPMAP and ICM; Gibbs sampling; mean field."""
