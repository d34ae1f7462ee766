"""Pure functions: tables in, tables or records out. No files, no processes, no pictures."""
