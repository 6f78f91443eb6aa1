"""What pages say of the board of `mini`, from its stored entries alone."""
