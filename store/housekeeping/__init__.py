"""What is done from time to time while servers run, one task after the other, a slice at a time."""
