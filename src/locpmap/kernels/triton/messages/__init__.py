"""Message passing: sweeps, and what is read off the messages."""
