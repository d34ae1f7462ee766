"""Files of a vLLM run made by others -> a run directory.

Each file is told by its content, whatever its name. Benchmark results become points (repeats and sweeps are
recognised), traces profiling passes; a result that was written while a trace was being recorded belongs to that pass
and is not a measurement. Of several logs the one that fits in time and model is the engine's. What is not understood,
or repeats something, is kept under `other/` and named with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from perflab import __version__
from perflab.errors import InputError
from perflab.messages import say
from perflab.runs import SCHEMA, Manifest, Profile, Run, RunWriter, now, open_run
from perflab.tasks.imports import engine as engines
from perflab.tasks.imports.copying import MOST_OTHER, Copier, shown, valid
from perflab.tasks.imports.passes import copied_profile, profiles_of, without_pass
from perflab.tasks.imports.points import Result, copied_point, points_of, results_of, unmatched
from perflab.tasks.imports.sorting import Found, named, sorted_out


def import_files(
    paths: Sequence[Path], out: Path, *, title: str | None = None, notes: Sequence[str] = (), pack: bool = False
) -> Run:
    """Make a run directory of files and folders of one vLLM run.

    Parameters
    ----------
    paths
        Files, or folders that are searched; run directories among them bring their points, profiles and engine.
    out
        The run directory to make; must not hold anything yet.
    title, notes
        What a reader should see. The title defaults to the name of `out`.
    pack
        Store text and traces xz-compressed; a third to a half smaller than gzip for traces.

    Raises
    ------
    InputError
        When a path does not exist, or nothing given is understood; the message says why for the first files.
    """
    found = sorted_out(paths)
    results, repeated = results_of(found.results, found.printed)
    found.other += repeated
    if not found.is_of_a_run:
        raise InputError(_nothing(found), path=paths[0] if paths else None)
    writer = RunWriter(
        out,
        Manifest(
            schema=SCHEMA,
            id=out.name,
            title=title or out.name,
            origin="imported",
            created=now(),
            perflab_version=__version__,
            notes=list(notes),
        ),
    )
    _fill(writer, found, results, pack)
    return open_run(out)


def _nothing(found: Found) -> str:
    seen = without_pass(found) + found.other + found.unreadable
    seen += [(path, say("import.config_alone")) for path in found.configs]
    seen += [(path, say("import.telemetry_alone")) for path in found.telemetry]
    return say("import.nothing", seen="; ".join(f"{shown(path)}: {why}" for path, why in seen[:3]) or "no files")


def _fill(writer: RunWriter, found: Found, results: Sequence[Result], pack: bool) -> None:
    copier = Copier(writer, pack)
    choice = engines.choose(found, results)
    engine = engines.engine_of(choice, found, results)
    profiles, profiled = profiles_of(found, results, copier)
    taken: set[str] = set()
    points = [copied_point(run, point, copier, taken) for run in found.runs for point in run.manifest.points]
    measured = [one for one in results if one not in profiled]
    points += points_of(measured, found.printed, copier, taken, lambda result: engines.other_model(engine, result))
    other = [*found.other, *choice.others, *unmatched(found.printed, measured), *without_pass(found)]
    other += [(path, say("import.second_telemetry")) for path in found.telemetry[1:]]
    kept, reasons = _others(other, copier)
    clock = next(((run, run.manifest.clock) for run in found.runs if run.manifest.clock), None)
    writer.update(
        created=engines.made(results, found) or writer.manifest.created,
        engine=valid(engine),
        hardware=engines.hardware_of(found),
        points=valid(sorted(points, key=lambda point: point.id)),
        profiles=[*_adopted_profiles(found, copier, {profile.id for profile in profiles}), *profiles],
        log=copier.copy(choice.log.path, "", "server.log", clean=True) if choice.log else None,
        metrics=[copier.copy(path, "metrics") for path in found.metrics],
        step_records=[
            msgspec.structs.replace(records, file=copier.copy(run.file(records.file), ""))
            for run in found.runs
            for records in run.manifest.step_records
        ],
        telemetry=copier.copy(found.telemetry[0], "", "telemetry.jsonl") if found.telemetry else None,
        clock=copier.copy(clock[0].file(clock[1] or ""), "", "clock.json") if clock else None,
        model_config=copier.copy(choice.config, "", "config.json") if choice.config else None,
        other_files=kept,
        status="complete",
    )
    for run in found.runs:
        for note in run.manifest.notes:
            writer.note(note)
    reasons += [say("import.cleaned", name=name) for name in copier.cleaned]
    reasons += [say("import.not_read", name=shown(path), why=why) for path, why in found.unreadable]
    for note in [*engines.warnings_of(choice, engine, found, measured), *reasons]:
        writer.note(valid(note))


def _others(other: Sequence[tuple[Path, str]], copier: Copier) -> tuple[list[str], list[str]]:
    """Files kept without being used, and a sentence on each."""
    kept, notes = [], []
    names = Counter(path.name for path, _ in other)
    for path, why in other:
        name = named(path, folder=names[path.name] > 1)
        if path.stat().st_size > MOST_OTHER:
            notes.append(say("import.too_large", name=name, why=why))
        else:
            kept.append(copier.copy(path, "other", clean=True))
            notes.append(say("import.not_understood", name=name, why=why))
    return kept, notes


def _adopted_profiles(found: Found, copier: Copier, taken: set[str]) -> list[Profile]:
    return [copied_profile(run, profile, copier, taken) for run in found.runs for profile in run.manifest.profiles]


__all__ = ["import_files"]
