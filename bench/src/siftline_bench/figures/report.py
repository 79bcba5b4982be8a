"""One HTML page with all figures, all claims with their verdicts, and the machine; it needs nothing else."""

from __future__ import annotations

import datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.figures import summary
from siftline_bench.figures.claims import VERDICTS, claims, verdicts
from siftline_bench.figures.drawing import svg
from siftline_bench.figures.panels import MISSING, panel
from siftline_bench.figures.registry import PAPERS, figures
from siftline_bench.targets import shown as shown_number

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from siftline_bench.figures.claims import Answer, Verdict
    from siftline_bench.figures.figure import Figure
    from siftline_bench.figures.measures import Measure
    from siftline_bench.results import Rounds

_STYLE: Final = """\
:root { --ink: #1a1a1a; --soft: #f3f3f3; --rule: #c4c4c4; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 1rem; color: var(--ink); background: white;
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .5rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
h3 { font-size: 1rem; margin: 1.8rem 0 .3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .5rem; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
.verdict { white-space: nowrap; font-weight: 600; }
.reproduced::before { content: "● "; } .partly::before { content: "◐ "; } .not-reproduced::before { content: "○ "; }
.not-testable::before, .not-measured::before { content: "- "; }
.not-testable, .not-measured { font-weight: 400; }
svg { display: block; max-width: min(100%, 54rem); height: auto; }
svg text { font-family: system-ui, sans-serif; }
summary { cursor: pointer; }
.figures { display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); }
.broad { grid-column: 1 / -1; } section { min-width: 0; }
.small { font-size: .85rem; color: #444; margin: .2rem 0; }
ul.plain { list-style: none; padding: 0; margin: 0; }
a { color: #1b4f72; }
"""


def html_of(scale: str, rows: Rounds, seed: int = 0, papers: Sequence[str] = tuple(PAPERS)) -> str:
    """Return the page of some papers, or of all; `rows` are by run."""
    found = verdicts([claim for claim in claims() if claim.paper in papers], scale, rows, seed)
    shown = [each for each in figures().values() if scale in each.scales]
    mine = [each for each in shown if each.paper in papers]
    parts = [_head(scale, rows, found), _claims(found)]
    parts += [_overview(each, {figure.name for figure in mine}) for each in summary.tables(mine, scale, rows, seed)]
    parts += [_paper(paper, shown, scale, rows, seed) for paper in papers]
    body = "\n".join(parts)
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Siftline: five papers, measured again</title>
<style>
{_STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


# at the top


def _head(scale: str, rows: Rounds, found: Sequence[Verdict]) -> str:
    counts = ", ".join(f"{sum(each.word == word for each in found)} {word}" for word in VERDICTS)
    sizes = "sizes chosen to take half an hour in all" if scale == "small" else "the papers' sizes, as memory allows"
    return f"""\
<h1>Five papers on matching events with subscriptions, measured again</h1>
<p>Every experiment of the papers, run by Siftline's own implementation of their indexes, at the scale <b>{scale}</b>:
{sizes}. A row is written only if the ids that an index found are those of a scan. Matching times are medians
over events of each event's median over passes, told at one speed of the machine: that at which <code>fast-scan</code>,
which takes turns with each index, was fastest on the same workload. Of runs that were measured in several rounds the
median counts, of times without a scan beside them the least.
{len(found)} claims: {counts}.</p>
{_machine(rows)}"""


def _machine(rows: Rounds) -> str:
    every = [row for rounds in rows.values() for row in rounds]
    if not every:
        return "<p>There are no rows yet.</p>"
    machines = {_machine_text(row["machine"]) for row in every}
    dates = sorted(str(row["date"])[:10] for row in every)
    commits = sorted({f"{str(row['commit'])[:10]}{' and changes' if row['is_dirty'] else ''}" for row in every})
    seeds = ", ".join(sorted({str(row["seed"]) for row in every}))
    shares = [row["processor_share"] for row in every if "processor_share" in row]
    n_busy = sum(share < 0.9 for share in shares)
    busy = (
        f" In {n_busy} of {len(shares)} timed runs others had the core for a tenth of the time or more."
        if n_busy
        else ""
    )
    return (
        f"<p class=small>{escape('; '.join(sorted(machines)))}. {len(rows):,} runs, {len(every):,} rows, "
        f"{dates[0]} to {dates[-1]}, seed {seeds}, "
        f"commit {escape(', '.join(commits[:5]))}{' and others' if len(commits) > 5 else ''}. "
        f"Page made on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}.{busy}</p>"
    )


def _machine_text(machine: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {machine[name]}" for name in ("siftline", "python", "numpy", "numba"))
    return f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB; {versions}"


# claims

# What floating-point numbers leave of 0.
_NOTHING: Final = 1e-9


def _claims(found: Sequence[Verdict]) -> str:
    lines = "\n".join(_claim_line(each) for each in found)
    return f"""\
<h2 id=claims>Claims</h2>
<p class=small>A claim is <i>reproduced</i> if all its checks hold, <i>partly</i> if some do. A number marked ≈ is so
near to its bound that another run may fall on the other side. Where such numbers decide about the word, they are
measured in several rounds, and the range of what each round says is given; what is still near leaves the verdict
<i>open</i>. Explanations are our reading of the numbers, not measurements.</p>
<div class=wide><table>
<tr><th>no.<th>where<th>claim<th>verdict<th>measured</tr>
{lines}
</table></div>"""


def _claim_line(verdict: Verdict) -> str:
    claim = verdict.claim
    answers = "".join(f"<li>{_answer(each)}" for each in verdict.answers)
    why = f"<p class=small>{escape(verdict.why)}</p>" if verdict.why else ""
    return (
        f"<tr id=claim-{claim.number}><td>{claim.number}<td>{escape(PAPERS[claim.paper].partition(' (')[0])}, "
        f"{escape(claim.where)}<td>{escape(claim.claim)}"
        f"<td class='verdict {verdict.word.replace(' ', '-')}'>{verdict.word}{' (open)' if verdict.hangs_on else ''}"
        f"<td><ul class=plain>{answers}</ul>{why}{_rows(verdict)}</tr>"
    )


def _rows(verdict: Verdict) -> str:
    """Return by which rows a verdict can be checked: the column `run` of the file has these names."""
    runs = dict.fromkeys(run for answer in verdict.answers for run in answer.runs)
    if not runs:
        return ""
    return f"<details class=small><summary>{len(runs)} runs</summary><code>{' '.join(runs)}</code></details>"


def _answer(answer: Answer) -> str:
    check = answer.check
    number = shown_number(answer.number if answer.number is None or abs(answer.number) > _NOTHING else 0.0)
    sign = "≈ " if answer.is_near else ""
    outcome = "" if answer.number is None else ", holds" if answer.holds else ", does not hold"
    ranged = [shown_number(end(answer.by_round)) for end in (min, max)] if answer.by_round else []
    has_range = len(set(ranged)) > 1  # what is counted is the same in all rounds
    rounds = f"; {len(answer.by_round)} rounds: {' to '.join(ranged)}" if has_range else ""
    left_out = f" (without {answer.n_left_out} of its points, not measured yet)" if answer.n_left_out else ""
    return (
        f"{sign}<b>{number}</b> ({escape(check.bounds)}{outcome}{rounds}): {escape(check.text)} "
        f"in <a href='#{check.figure}'>{check.figure}</a>{left_out}"
    )


# all figures


def _overview(table: summary.Table, names: Container[str]) -> str:
    """Return a table, with links where its lines begin with figures."""
    lines = ""
    for first, *cells in table.lines:
        begin = f"<a href='#{first}'>{first}</a>" if first in names else escape(first)
        lines += f"<tr><td>{begin}" + "".join(f"<td>{escape(cell)}" for cell in cells) + "</tr>"
    heading = "".join(f"<th>{escape(cell)}" for cell in table.heading)
    return f"""\
<h2 id={table.name}>{table.title}</h2>
<p class=small>{escape(table.note)}</p>
<div class=wide><table><tr>{heading}</tr>{lines}</table></div>"""


# figures


def _paper(paper: str, shown: Sequence[Figure], scale: str, rows: Rounds, seed: int) -> str:
    mine = "\n".join(_figure(each, scale, rows, seed) for each in shown if each.paper == paper)
    return f"<h2 id={paper}>{escape(PAPERS[paper])}</h2>\n<div class=figures>{mine}</div>"


def _figure(figure: Figure, scale: str, rows: Rounds, seed: int) -> str:
    note = f"<p class=small>{escape(figure.note)}</p>" if figure.note else ""
    is_measured = any(run.key in rows for run in figure.runs(scale, seed))
    picture = svg(figure, scale, rows, seed) if is_measured else "<p>Not measured yet.</p>"
    return f"""\
<section{" class=broad" if len(figure.y) > 1 else ""}>
<h3 id={figure.name}>{escape(figure.where)}: {escape(figure.title)}</h3>
{picture}
<p class=small>{escape(_setting(figure, scale))}</p>{note}
<details><summary class=small>numbers</summary><div class=wide>{_table(figure, scale, rows, seed)}</div></details>
</section>"""


def _setting(figure: Figure, scale: str) -> str:
    """Return what the runs of a figure have in common."""
    runs = figure.runs(scale)
    first = runs[0].parameters
    common = [name for name in first if all(run.parameters.get(name) == first[name] for run in runs)]
    return ", ".join([runs[0].workload, *(f"{name} {first[name]}" for name in common)])


def _table(figure: Figure, scale: str, rows: Rounds, seed: int) -> str:
    measures = [axis.measure for axis in figure.y if axis.measure is not None]
    return "".join(
        _lines(figure, axis.label, each, scale, rows, seed) for axis, each in zip(figure.y, measures, strict=True)
    )


def _lines(figure: Figure, label: str, measure: Measure, scale: str, rows: Rounds, seed: int) -> str:
    shown = panel(figure, measure, scale, rows, seed)
    xs = list(dict.fromkeys(point.x for points in shown.series.values() for point in points))
    heading = "".join(f"<th class=number>{_x(x)}" for x in xs)
    lines = ""
    for name, points in shown.series.items():
        cells = {point.x: _cell(point.value, point.status) for point in points}
        lines += f"<tr><td>{escape(name)}" + "".join(f"<td class=number>{cells.get(x, '')}" for x in xs) + "</tr>"
    return f"<table><tr><th>{escape(label)}, by {escape(figure.x.label)}{heading}</tr>{lines}</table>"


def _x(x: Any) -> str:
    return f"{x:,}" if isinstance(x, (int, float)) else escape(str(x))


def _cell(value: float | None, status: str) -> str:
    if value is None:
        return "" if status == MISSING else escape(status)
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"
