"""Message passing: sweeps, and results computed from messages."""
