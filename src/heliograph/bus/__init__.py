"""What joins client managers and message managers: the commands they exchange and the buses that carry
them."""
