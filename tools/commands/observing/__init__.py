"""Commands that show what the store does, and who does what with it: a module for each group, as in the room above."""
