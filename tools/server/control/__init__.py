"""What a running server is asked by administrators, and what its processes tell; and the link between back ends."""
