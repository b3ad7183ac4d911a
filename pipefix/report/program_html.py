"""A training program on the page: its loops, when they ran and waited, and what its ranks do to each other."""

from __future__ import annotations

from pipefix.report import plots, program_text, wording
from pipefix.report.markup import Markup, el, join, sentence, table
from pipefix.report.plots import PlotRow
from pipefix.report.runfile import LoopFigures, ProgramFigures, Run


def section_of(run: Run) -> Markup:
    """Empty where no program was run."""
    if run.program is None:
        return Markup("")
    program = run.program
    parts = [el("p", sentence(words)) for words in program_text.notes(program)]
    for finding in program.findings:
        parts.append(el("p", el("b", f"{finding.severity}: {finding.found}. "), sentence(finding.advice), role="note"))
    if program.loops:
        head, *rows = program_text.rows(program)
        parts.append(el("figure", el("figcaption", "When each loop ran, and waited for batches"), _lanes(program)))
        parts.append(table("Loops over loaders", head, rows))
    return join(parts)


def _lanes(program: ProgramFigures) -> Markup:
    ends = [span.end for loop in program.loops for span in loop.timeline]
    scale = plots.Scale(0.0, max([program.seconds, *ends, 1e-3]))
    rows = [_lane(loop, scale, several=program.ranks > 1) for loop in program.loops if loop.timeline]
    if not rows:
        return Markup("")
    axis = "since the program began; above: waiting for batches, below: working on them"
    return plots.chart(rows, scale, axis=axis, ticks=[wording.seconds(tick) if tick else "0 s" for tick in scale.ticks])


def _lane(loop: LoopFigures, scale: plots.Scale, *, several: bool) -> PlotRow:
    shapes = []
    for span in loop.timeline:
        left = scale.at(span.begin)
        wide = max(0.05, scale.at(span.end) - left)
        waited = round(100 * min(1.0, max(0.0, span.waited)), 1)
        place = {"x": f"{left:.3f}%", "width": f"{wide:.3f}%"}
        shapes.append(el("rect", **place, y=0, height=f"{waited}%", class_="s-decode"))
        shapes.append(el("rect", **place, y=f"{waited}%", height=f"{100 - waited:.1f}%", class_="s-step"))
    label = f"{loop.role} {loop.loader or '(no loader)'}" + (f", rank {loop.rank}" if several and loop.rank is not None else "")
    return PlotRow(label=Markup(sentence(label)), said=Markup(sentence(program_text.waits(loop))), shapes=join(shapes), title=label)
