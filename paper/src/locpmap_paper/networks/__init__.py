"""Networks that only the experiments use, with their published weights."""
