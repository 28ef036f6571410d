"""`onecopy quota report`: the Spark job, its figures, charts and page."""
