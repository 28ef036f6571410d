"""The pages of docs/reference, in Markdown, each made of the table that the program itself goes by: options, commands,
extensions of IMAP, metrics, lines of the log, files. `onecopy man --markdown FOLDER` writes them. Imports what they are
about, and is imported by that command alone. Front door: `writtenpages.pages`."""
