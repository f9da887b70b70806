"""``locpmap reproduce``: run one of the paper's experiments and write a report."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer

from locpmap.errors import InputError, unknown
from locpmap_paper.commands.data import fetch_with_bar

N_BEST = 5  # decoders per model in the final table
MAX_SEEDS = 1000
REPORT_SECONDS = 5.0  # rough duration
KNOWN = 30.0  # seconds of measured speed that count as much as the expected durations
FOR_DECODERS = timedelta(days=7)  # timeout of the other processes while the first one decodes


def reproduce(
    experiment: Annotated[str, typer.Argument(metavar="digits|mnist|caltech|stanford", help="Name of the experiment.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Output folder; out/NAME by default.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=MAX_SEEDS, help="Number of seeds; 3 by default, 1 for digits.")
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Smoke run: few images and samples, about a minute.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="All models and decoders of digits, on 300 test images; by default fewer.")
    ] = False,
    train: Annotated[
        bool, typer.Option("--train", help="Train the networks of digits; by default their weights are bundled.")
    ] = False,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Device of networks and decoders.")] = "auto",
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with the data, as `locpmap data fetch` fills it.")
    ] = None,
    level: Annotated[
        list[str] | None, typer.Option(help="Noise level, variance or amplitude; may be given twice.")
    ] = None,
    unary: Annotated[
        str | None,
        typer.Option(metavar="boosted|deeplab|pretrained|all", help="Unaries of stanford; all by default."),
    ] = None,
    models: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Models, such as raw-pl,raw-consistent; all by default.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Number of processes, each for one level and seed; they share a GPU.")
    ] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Dask scheduler instead of --jobs; its workers share this file system."),
    ] = None,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html and the figures.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Run one of the paper's experiments; write result.json, pictures.npz and report.html.

    A run can be stopped at any time; the same command resumes it.  Under ``torchrun --nproc-per-node N -m locpmap
    reproduce ..`` N processes train the networks that learn together with a CRF; the first does everything else.
    """
    from locpmap.learning import joined_processes
    from locpmap_paper.experiments import run
    from locpmap_paper.experiments.protocol import known_experiment

    with joined_processes(FOR_DECODERS) as processes:
        folder = Path("out") / known_experiment(experiment, full).name if output is None else output
        if train and experiment == "stanford":
            raise InputError("--train is given with stanford, expected digits: stanford always trains its networks")
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--output is {folder}, a file, expected a folder")
        levels = _levels(experiment, level, unary)
        if processes.first:
            fetch_with_bar(known_experiment(experiment).dataset, data, None, hidden=as_json)
        processes.tell("")  # the data are complete
        with RunBars(hidden=as_json or not processes.first, report=report) as bars:
            path = run(
                experiment,
                folder,
                seeds=None if seeds is None else range(seeds),
                fast=fast,
                full=full,
                train=train,
                device=device,
                data=data,
                levels=levels,
                models=None if models is None else [name.strip() for name in models.split(",") if name.strip()],
                progress=bars,
                command=shlex.join(["locpmap", *sys.argv[1:]]),
                jobs=jobs,
                scheduler=scheduler,
                processes=processes,
            )
            written: Path | None = None
            if report and processes.first:
                from locpmap_paper.report import write_report

                bars.report()
                written = write_report(folder)
        if not processes.first:
            return
        result = json.loads(path.read_text("utf-8"))
        summary = {
            "experiment": experiment,
            "result": str(path),
            "report": None if written is None else str(written),
            "best": best_decoders(result),
        }
        typer.echo(json.dumps(summary, allow_nan=False) if as_json else _table(summary))


def _levels(experiment: str, levels: list[str] | None, unary: str | None) -> list[str] | None:
    """Return the levels; for scenes they are the kinds of unaries."""
    if unary is None:
        return levels
    if experiment != "stanford" or levels:
        raise InputError("--unary is given, expected it only with stanford and without --level")
    from locpmap_paper.experiments.scenes.experiment import UNARIES

    if unary not in ("all", *UNARIES):
        raise unknown("unary", unary, ("all", *UNARIES))
    return None if unary == "all" else [unary]


class RunBars:
    """Show progress and the remaining time on standard error: two bars on a terminal, else one line per model."""

    def __init__(self, *, hidden: bool, report: bool = True) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn
        from rich.text import Text

        class Left(ProgressColumn):
            def render(self, task: Task) -> Text:
                ends = task.fields["ends"]
                return Text("" if ends is None else _left(ends - (task.elapsed or 0.0)))

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Left())
        self._bars = Progress(*columns, console=console, transient=True, disable=hidden or not console.is_terminal)
        self._plain = None if hidden or console.is_terminal else console
        self._model = ""
        self._stage = (0.0, 0.0)  # expected seconds before the current stage, and of it
        self._report = REPORT_SECONDS if report else 0.0
        self._all = self._bars.add_task("all stages", total=None, ends=None)
        self._now = self._bars.add_task("", total=None, ends=None)

    def __enter__(self) -> RunBars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def stage(self, done: float, total: float, title: str, cost: float = 1.0) -> None:
        """Start a stage."""
        self._stage = done, cost
        self._bars.update(self._all, total=total + self._report)
        self._bars.reset(self._now, description=title, total=None)
        left = self._update(done)
        model = title.partition(":")[0]
        if self._plain is not None and model != self._model:
            self._plain.print(f"{model}: {_left(left)}", highlight=False)
        self._model = model

    def step(self, done: int, total: int) -> None:
        """Update the progress of the current stage."""
        self._bars.update(self._now, completed=done, total=total)
        before, cost = self._stage
        self._update(before + cost * done / max(total, 1))

    def report(self) -> None:
        """Start the last stage, which writes the report."""
        before = (self._bars.tasks[self._all].total or self._report) - self._report
        self.stage(before, before, "report", self._report)

    def _update(self, done: float) -> float:
        """Move the bar of all stages; return the remaining seconds."""
        task = self._bars.tasks[self._all]
        elapsed, total = task.elapsed or 0.0, task.total or 0.0
        left = (total - done) * (elapsed + KNOWN) / (done + KNOWN)
        self._bars.update(self._all, completed=done, ends=elapsed + left)
        return left


def _left(seconds: float) -> str:
    """Return the remaining time in words.

    >>> _left(12.4), _left(200.0), _left(-1.0)
    ('about 12 s left', 'about 3 min left', 'about 1 s left')
    """
    return f"about {max(seconds, 1):.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"


def best_decoders(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ranked decoders with the highest mean IoU over seeds, per level and model, best first."""
    from locpmap_paper.report.record import RANKED

    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        if row["refused"] is None:
            groups.setdefault((row["level"], row["model"], row["decoder"]), []).append(row)
    lines = [
        {
            "level": level,
            "model": model,
            "decoder": decoder,
            "n_images": rows[0]["n_images"],
            **{name: _mean([row[name] for row in rows]) for name in ("mean_iou", "nll", "seconds")},
        }
        for (level, model, decoder), rows in groups.items()
    ]
    best = []
    for level, model in dict.fromkeys((line["level"], line["model"]) for line in lines):
        own = [line for line in lines if (line["level"], line["model"]) == (level, model)]
        most = max(line["n_images"] for line in own)
        ranked = [line for line in own if line["n_images"] * RANKED >= most]
        best += sorted(ranked, key=lambda line: -line["mean_iou"])[:N_BEST]
    return best


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _table(summary: dict[str, Any]) -> str:
    wide = max(len(line["decoder"]) for line in summary["best"])
    lines = [f"{'level':<10} {'model':<20} {'decoder':<{wide}} {'images':>6} {'mean IoU':>8} {'NLL':>6} {'seconds':>8}"]
    before = None
    for line in summary["best"]:
        group = (line["level"], line["model"])
        level, model = group if group != before else ("", "")
        before = group
        nll = "-" if line["nll"] is None else f"{line['nll']:.3f}"
        numbers = f"{line['n_images']:>6} {line['mean_iou']:>8.3f} {nll:>6} {line['seconds']:>8.2f}"
        lines.append(f"{level:<10} {model:<20} {line['decoder']:<{wide}} {numbers}")
    lines += ["", f"{'numbers':<10} {summary['result']}"]
    if summary["report"] is not None:
        lines.append(f"{'report':<10} {summary['report']}")
    return "\n".join(lines)
