"""What a start does before anybody uses the store: databases are mended or rebuilt, and
the list and the partitions reconciled.
"""
