"""A run as one page that opens anywhere, offline: the card, every figure with its interval, and the table behind each figure.

The page asks the network for nothing, and its content policy forbids it to. Without its script it is a complete, printable report.
"""

from __future__ import annotations

from pipefix.report import program_html, setup, wording
from pipefix.report.card import Card, card, remedy_cost, remedy_pedigree
from pipefix.report.charts import arms_figure, ops_figure, samples_figure, stages_figure, waits_figure, what_if_figure
from pipefix.report.markup import Markup, Piece, behind, el, join, name, sentence, table
from pipefix.report.runfile import RemedyFigures, Run, encode
from pipefix.report.skeleton import command, document, header, labelled, section, tiles
from pipefix.vocabulary.nvml import in_words

_TITLES = {"input-bound": "Input-bound", "step-bound": "Step-bound", "balanced": "Balanced", "inconclusive": "Inconclusive"}


def page(run: Run) -> str:
    """The whole page."""
    said = card(run)
    sections = [(anchor, title, body) for anchor, title, body in _sections(run) if body]
    title = f"{_TITLES.get(said.kind, 'Probe')}: {run.target or 'a pipeline'} (pipefix)"
    main = [_header(run, sections), _card(said, run), *(section(*parts) for parts in sections)]
    return document(title, main, _footer(run), data=encode(run))


def _sections(run: Run) -> list[tuple[str, str, Markup]]:
    return [
        ("program", "The program", program_html.section_of(run)),
        ("where", "Where the time goes", stages_figure(run)),
        ("what-if", "What if", what_if_figure(run)),
        ("remedies", "Remedies", _remedies(run)),
        ("operations", "Operations", ops_figure(run)),
        ("waits", "Batch by batch", waits_figure(run)),
        ("beside", "Start-up, tails and the step", _beside(run)),
        ("tried", "What was tried", arms_figure(run)),
        ("audit", "Audit", _audit(run)),
        ("caveats", "Caveats", _caveats(run)),
        ("setup", "Settings, machine and instrument", _setup(run)),
    ]


# -- the top ---------------------------------------------------------------------------------------------------------


def _header(run: Run, sections: list[tuple[str, str, Markup]]) -> Markup:
    consumer = "no consumer" if run.consumer == "none" else f"consumer: {run.consumer}"
    measured = run.program is None or run.stages
    lines = (
        [_phrases([*setup.settings_line(run.settings), consumer]), _phrases(setup.machine_line(run.machine))] if measured else []
    )
    links = el("nav", [el("a", title, href=f"#{anchor}") for anchor, title, _ in sections], aria_label="Parts of this report")
    made = el("span", run.created, class_="made") if run.created else None
    brand = "pipefix run " if run.program else "pipefix probe "
    facts = el("p", made, [el("span", line) for line in lines if line], class_="facts")
    return header(brand, run.target or "a pipeline", facts, links if sections else None, saves=True)


def _phrases(phrases: list[str]) -> Markup:
    return Markup(" · ".join(sentence(phrase) for phrase in phrases))


def _card(said: Card, run: Run) -> Markup:
    kind = said.kind if said.kind in _TITLES else "none"
    badge = el("p", el("span", _TITLES.get(said.kind, said.kind), class_="badge"), el("span", said.confidence, class_="sure"))
    rows = [labelled("Verdict", el("p", sentence(said.verdict), class_="verdict"), badge)]
    if said.why:
        rows.append(
            labelled("Why", [el("p", el("b", f"By the {label}. "), sentence(_capital(words))) for label, words in said.why])
        )
    rows.append(labelled("Next", el("p", sentence(" ".join(said.next))), command(said.command) if said.command else None))
    warned = (
        el("p", "Interrupted: these figures are what was known by then.", class_="partial", role="note") if run.partial else None
    )
    return el(
        "section", warned, el("dl", rows), _tiles(run), class_=f"card k-{kind}", id="card", aria_label="Verdict, why and next"
    )


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _tiles(run: Run) -> Markup | None:
    figures = []
    rates = run.throughput
    if rates is not None:
        figures.append(("delivered", wording.rate_between(rates.delivered, rates.unit)))
        if rates.demand is not None:
            figures.append(("the consumer could take", wording.rate_between(rates.demand, rates.unit)))
    if run.waits is not None and wording.known(run.waits.fed):
        figures.append(("fed", f"{wording.percent(run.waits.fed)} (of the loop's time)"))
        if run.waits.loader_s:
            figures.append(("the loader's own wait", f"{wording.seconds(run.waits.loader_s)} (a batch, whatever the data)"))
    if run.startup is not None and wording.known(run.startup.first_batch_s):
        figures.append(("first batch", wording.seconds(run.startup.first_batch_s)))
    return tiles(figures)


# -- remedies, audit, caveats ----------------------------------------------------------------------------------------


def _remedies(run: Run) -> Markup:
    proposed = [remedy for remedy in run.remedies if remedy.status == "proposed"]
    others = [remedy for remedy in run.remedies if remedy.status != "proposed"]
    parts: list[Piece] = []
    if proposed:
        parts.append(el("ol", [_remedy(remedy) for remedy in proposed], class_="remedies"))
    if others:
        rows = [[name(one.title), name(one.stage), one.status, sentence(one.why)] for one in others]
        parts.append(
            behind(f"{len(others)} not proposed, and why", table("Not proposed", ("Remedy", "Stage", "Status", "Why"), rows))
        )
    return join(parts)


def _remedy(remedy: RemedyFigures) -> Markup:
    known = wording.usable(remedy.speedup) is not None
    worth = el("span", wording.times_between(remedy.speedup) if known else "not known", class_="worth")
    pedigree = el("span", remedy_pedigree(remedy), class_="pedigree measured" if remedy.measured else "pedigree")
    cost = remedy_cost(remedy)
    facts = el("p", sentence(remedy.why), el("span", f"Costs {cost}.", class_="cost") if cost else None)
    head = el("h3", name(remedy.title), " ", worth, pedigree)
    aside = el("p", "Mind: ", sentence(remedy.risk), class_="aside") if remedy.risk else None
    return el("li", head, facts, aside, command(remedy.command) if remedy.command else None)


def _audit(run: Run) -> Markup:
    items = []
    for finding in run.audit:
        level = finding.severity if finding.severity in ("problem", "warning", "note") else "other"
        rule = el("p", "Rule: ", sentence(finding.rule), class_="rule") if finding.rule else None
        head = el("p", el("span", finding.severity, class_=f"severity v-{level}"), " ", sentence(finding.found))
        items.append(el("li", head, el("p", sentence(finding.advice)), rule))
    return el("ul", items, class_="findings") if items else Markup("")


def _caveats(run: Run) -> Markup:
    if not run.caveats:
        return Markup("")
    lead = el("p", "What these figures cannot say, and what would settle it.", class_="lead")
    return join((lead, el("ul", [el("li", sentence(caveat.sentence)) for caveat in run.caveats], class_="caveats")))


# -- what lies beside the steady state -------------------------------------------------------------------------------


def _beside(run: Run) -> Markup:
    rows: list[tuple[str, str]] = []
    if run.startup is not None:
        rows += [
            ("First batch after", wording.seconds(run.startup.first_batch_s)),
            ("Next epoch's first batch after", wording.seconds(run.startup.epoch_restart_s)),
            ("Loading the target", wording.seconds(run.startup.load_target_s)),
        ]
    if run.tail is not None:
        tail = run.tail
        rows += [(f"A sample's cost, {label}", wording.seconds(value)) for label, value in _tail_pairs(run)]
        rows.append(("Samples looked at", wording.number(tail.samples)))
        rows.append(("Ready behind an unfinished batch, a sample", wording.seconds(tail.head_of_line_s)))
    if run.step_split is not None:
        split = run.step_split
        named = (
            ("forward", split.forward_s),
            ("backward", split.backward_s),
            ("optimizer", split.optimizer_s),
            ("other", split.other_s),
        )
        rows += [(f"A step, {label}", wording.seconds(value)) for label, value in named]
    said = in_words(run.machine.get("while_measured", {}), "nvml_")
    if said:
        rows.append(("The GPU, says its driver", said))
    cold = setup.cold_sentence(run)
    if cold:
        rows.append(("Cold storage", cold))
    kept = [(label, name(figure)) for label, figure in rows if figure != wording.UNKNOWN]
    figures = table("Start-up, tails and the step", ("What", "Figure"), kept, class_="pairs") if kept else None
    return join((samples_figure(run), figures))


def _tail_pairs(run: Run) -> list[tuple[str, float]]:
    tail = run.tail
    return [] if tail is None else [("median", tail.p50_s), ("p95", tail.p95_s), ("p99", tail.p99_s), ("slowest", tail.max_s)]


def _setup(run: Run) -> Markup:
    blocks: list[Piece] = []
    listed = (
        ("Loader settings", setup.settings_pairs(run.settings)),
        ("Machine", setup.pairs(run.machine)),
        ("The instrument's own cost", _instrument(run)),
    )
    for title, pairs in listed:
        rows = [(name(key), name(value)) for key, value in pairs if value != wording.UNKNOWN]
        if rows:
            blocks.append(behind(title, table(title, ("What", "Value"), rows, class_="pairs")))
    if run.verdict is not None and run.verdict.rule:
        blocks.append(el("p", "The rule that decided: ", sentence(run.verdict.rule), class_="rule"))
    return join(blocks)


def _instrument(run: Run) -> list[tuple[str, str]]:
    tool = run.instrument
    if tool is None:
        return []
    return [
        ("The probe took", wording.seconds(tool.seconds)),
        ("A timed call costs", wording.seconds(tool.seam_cost_s)),
        ("Timed calls a sample", wording.number(tool.seams_per_sample)),
        ("A sample with clocks, over one without", wording.times(tool.slowdown)),
        ("Peak memory", wording.size(tool.peak_rss_bytes)),
        ("Recordings", wording.size(tool.recording_bytes)),
    ]


def _footer(run: Run) -> str:
    made = f"pipefix {run.pipefix}" if run.pipefix else "pipefix"
    return f"Made by {made}. Intervals are 95 %. The page holds its run file and needs no network."
