"""One module per question a person asks. Alone joins capture and read with analysis."""
