"""The tests of Sieve, each with its form: a function of a run and a node that says true or false."""
