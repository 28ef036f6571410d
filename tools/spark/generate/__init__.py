"""Generated stores of any size, for tests and measurements of Spark's jobs."""
