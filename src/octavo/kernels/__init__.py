"""What computes: the op list, the numpy reference that defines it, and the native interpreter."""
