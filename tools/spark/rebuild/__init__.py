"""The plan of a rebuild: a folder of Parquet tables made from message files and the user area, and its loading."""
