"""What a training step of a factor model costs, for any sizes, machine and network: predicted, and checked."""
