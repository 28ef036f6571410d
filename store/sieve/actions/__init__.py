"""The commands of Sieve, each with its form: a function of a run and a node that adds to the outcome, or chooses what
is done next."""
