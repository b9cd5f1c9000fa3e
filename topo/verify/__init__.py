"""What is proved: over which shapes, in which ways, and that the verifier itself can fail."""
