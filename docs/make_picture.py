"""The README's picture: python docs/make_picture.py"""

from pathlib import Path

from perflab.plots.breakdown import plot_breakdown
from perflab.report import views
from perflab.tasks.breakdown import breakdown

RUNS = ["llama3-8b-eager", "llama3-8b-bf16", "llama3-70b-bf16-tp2"]
(piece,) = views.breakdown_pieces(breakdown(RUNS))
axes = plot_breakdown(**piece)
axes.figure.savefig(Path(__file__).parent / "images" / "breakdown.png", dpi=130, facecolor="white")
