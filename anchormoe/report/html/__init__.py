"""The report: one HTML file with the answers, figures, tables and all rows in it, which needs nothing else."""
