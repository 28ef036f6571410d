"""What the three servers share at the edge of the network: connections, lines, limits, threads, news."""
