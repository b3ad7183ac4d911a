"""What was done in a folder, as lines for the terminal, and what it is worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipefix.report import wording
from pipefix.report.columns import Paint, for_terminal


@for_terminal
def lines(
    done: Sequence[tuple[str, str, str, str]], saved_s: float | None, epochs: int | None, price: float | None, paint: Paint
) -> Iterator[str]:
    """``done``: when, what, on which target, and what came of it. ``saved_s``: seconds of each epoch."""
    if not done:
        yield from paint.paragraph("Nothing was done here: there is no run file, no plan and no log of pipefix fix.")
        return
    target = ""
    for at, what, on, said in done:
        if on != target:
            yield paint.ink(paint.text(on or "an unnamed target"), "bold")
            target = on
        when = paint.text(at[:16].replace("T", " "))
        yield from paint.labelled(f"  {when:<16}  {what:<5}", said, "dim", indent=27)
    if saved_s is not None and saved_s > 0:
        yield ""
        yield from paint.paragraph(worth(saved_s, epochs, price))


def worth(saved_s: float, epochs: int | None, price: float | None) -> str:
    """``What fix kept saves 42.0 s an epoch, 1.1 h in 90 epochs, and 2.63 at 2.50 an hour.``"""
    said = [f"What fix kept saves {wording.seconds(saved_s)} an epoch"]
    count = epochs or 1
    if epochs:
        said.append(f"{wording.seconds(epochs * saved_s)} in {epochs:,} epochs")
    if price is not None:
        said.append(f"which is {count * saved_s / 3600 * price:,.2f} at {price:,.2f} an hour")
    return ", ".join(said) + "."
