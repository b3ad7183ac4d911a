"""A run as one page that opens anywhere, offline: the card, every figure with its interval, and the table behind each figure.

The page asks the network for nothing, and its content policy forbids it to. Without its script it is a complete, printable report.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from pipefix.report import about, wording
from pipefix.report.card import Card, card, remedy_cost, remedy_pedigree
from pipefix.report.figures import arms_figure, ops_figure, stages_figure, waits_figure, what_if_figure
from pipefix.report.markup import Markup, Piece, behind, el, join, name, sentence, table, text
from pipefix.report.runfile import RemedyFigures, Run, encode

_TITLES = {"input-bound": "Input-bound", "step-bound": "Step-bound", "balanced": "Balanced", "inconclusive": "Inconclusive"}


def page(run: Run) -> str:
    """The whole page."""
    said = card(run)
    style, script = asset("page.css"), asset("page.js")
    policy = f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; base-uri 'none'; form-action 'none'"
    sections = [(anchor, title, body) for anchor, title, body in _sections(run) if body]
    head = el(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="generator" content="pipefix"><meta name="color-scheme" content="light dark">'),
        el("title", f"{_TITLES.get(said.kind, 'Probe')}: {run.target or 'a pipeline'} (pipefix)"),
        Markup(f"<style>{style}</style>"),
    )
    main = [_header(run, sections), _card(said, run)]
    main += [_section(anchor, title, body) for anchor, title, body in sections]
    data = encode(run).decode().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    body = el(
        "body",
        el("a", "Skip to the figures", href="#where", class_="skip"),
        el("main", main),
        _footer(run),
        Markup(f'<script type="application/json" id="run">{data}</script>'),
        Markup(f"<script>{script}</script>"),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def asset(file: str) -> str:
    return files("pipefix.report").joinpath(file).read_text(encoding="utf-8")


def digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _section(anchor: str, title: str, body: Piece) -> Markup:
    return el("section", el("h2", title, id=f"{anchor}-title"), body, id=anchor, aria_labelledby=f"{anchor}-title")


def _sections(run: Run) -> list[tuple[str, str, Markup]]:
    return [
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
    tools = el(
        "div",
        el("button", "Theme: system", type="button", id="theme", class_="tool"),
        el("button", "Save run file", type="button", id="save", class_="tool"),
        el("button", "Print", type="button", id="print", class_="tool"),
        class_="tools",
    )
    consumer = "no consumer" if run.consumer == "none" else f"consumer: {run.consumer}"
    lines = [_phrases([*about.settings_line(run.settings), consumer]), _phrases(about.machine_line(run.machine))]
    links = el("nav", [el("a", title, href=f"#{anchor}") for anchor, title, _ in sections], aria_label="Parts of this report")
    made = el("span", run.created, class_="made") if run.created else None
    top = el("div", el("h1", el("span", "pipefix probe ", class_="brand"), name(run.target or "a pipeline")), tools, class_="top")
    return el(
        "header", top, el("p", made, [el("span", line) for line in lines if line], class_="facts"), links if sections else None
    )


def _phrases(phrases: list[str]) -> Markup:
    return Markup(" · ".join(sentence(phrase) for phrase in phrases))


def _card(said: Card, run: Run) -> Markup:
    kind = said.kind if said.kind in _TITLES else "none"
    badge = el("p", el("span", _TITLES.get(said.kind, said.kind), class_="badge"), el("span", said.confidence, class_="sure"))
    rows = [_labelled("Verdict", el("p", sentence(said.verdict), class_="verdict"), badge)]
    if said.why:
        rows.append(
            _labelled("Why", [el("p", el("b", f"By the {label}. "), sentence(_capital(words))) for label, words in said.why])
        )
    rows.append(_labelled("Next", el("p", sentence(" ".join(said.next))), command(said.command) if said.command else None))
    warned = (
        el("p", "Interrupted: these figures are what was known by then.", class_="partial", role="note") if run.partial else None
    )
    return el(
        "section", warned, el("dl", rows), _tiles(run), class_=f"card k-{kind}", id="card", aria_label="Verdict, why and next"
    )


def _labelled(label: str, *body: Piece) -> Markup:
    return join((el("dt", label), el("dd", *body)))


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _tiles(run: Run) -> Markup | None:
    tiles = []
    rates = run.throughput
    if rates is not None:
        tiles.append(("delivered", wording.rate_between(rates.delivered, rates.unit)))
        if rates.demand is not None:
            tiles.append(("the consumer could take", wording.rate_between(rates.demand, rates.unit)))
    if run.waits is not None and wording.known(run.waits.fed):
        tiles.append(("fed", f"{wording.percent(run.waits.fed)} (of the loop's time)"))
        if run.waits.loader_s:
            tiles.append(("the loader's own wait", f"{wording.seconds(run.waits.loader_s)} (a batch, whatever the data)"))
    if run.startup is not None and wording.known(run.startup.first_batch_s):
        tiles.append(("first batch", wording.seconds(run.startup.first_batch_s)))
    made = [_tile(label, *figure.partition(" (")) for label, figure in tiles]
    return el("div", made, class_="tiles") if made else None


def _tile(label: str, figure: str, opening: str, rest: str) -> Markup:
    small = el("span", f"({rest}", class_="interval") if opening else None
    return el("div", el("span", label, class_="tile-label"), el("span", figure, class_="tile-figure"), small, class_="tile")


def command(line: str) -> Markup:
    """A command that can be copied; its words are broken only where one is wider than the page."""
    words = [piece if piece.isspace() else el("span", piece) for piece in re.split(r"(\s+)", line) if piece]
    button = el("button", "Copy", type="button", class_="tool copy", aria_label="Copy this command")
    return el("div", el("pre", el("code", words), tabindex=0), button, class_="command")


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
    cold = about.cold_sentence(run)
    if cold:
        rows.append(("Cold storage", cold))
    kept = [(label, name(figure)) for label, figure in rows if figure != wording.UNKNOWN]
    return table("Start-up, tails and the step", ("What", "Figure"), kept, class_="pairs") if kept else Markup("")


def _tail_pairs(run: Run) -> list[tuple[str, float]]:
    tail = run.tail
    return [] if tail is None else [("median", tail.p50_s), ("p95", tail.p95_s), ("p99", tail.p99_s), ("slowest", tail.max_s)]


def _setup(run: Run) -> Markup:
    blocks: list[Piece] = []
    listed = (
        ("Loader settings", about.settings_pairs(run.settings)),
        ("Machine", about.pairs(run.machine)),
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


def _footer(run: Run) -> Markup:
    made = f"pipefix {run.pipefix}" if run.pipefix else "pipefix"
    return el("footer", el("p", f"Made by {made}. Intervals are 95 %. The page holds its run file and needs no network."))
