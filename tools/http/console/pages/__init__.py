"""The pages of the console, one module for each group: `allpages.SECTIONS` has all. How one is made is in the text of
the frame, `tools/http/console`, of which they import what they need."""
