"""Tables -> figures: `plot_x(table, *, ax=None) -> Axes`; composers return a `Figure`."""
