"""File -> table, one module a format. Readers neither draw conclusions nor print."""
