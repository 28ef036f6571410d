"""Real servers of a test's own, each in its folder and on free ports: ours, relays, directories, others' stores."""
