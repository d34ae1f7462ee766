"""What a model of a given shape has to do in a step: its sizes, and the work of each part."""
