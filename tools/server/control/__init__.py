"""What a running server is asked by administrators, and what its processes tell; and the link between back ends.

Each process listens on `run/control/<name>` for lines of JSON: its connections in pages, statistics, the configuration
it goes by (`controlserver`). `backendlink` carries moves of users.
"""
