"""Networks used by the experiments only, with their published weights."""
