"""From training pairs to the operators that inference applies."""
