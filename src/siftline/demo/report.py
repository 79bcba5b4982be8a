"""The report: one self-contained HTML file, readable on a phone and without colours."""

from __future__ import annotations

import statistics
from html import escape
from typing import TYPE_CHECKING, Any, Final

from siftline.demo.charts import bars, columns, log_curve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from siftline.demo.figures import Figures, Sample

_STYLE: Final = """\
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --soft: #f2f2f2; --rule: #c4c4c4; --bar: #2f5d8a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececec; --paper: #161616; --soft: #242424; --rule: #565656; --bar: #9dbfe0; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .3rem; }
.numbers { display: grid; grid-template-columns: repeat(2, 1fr); gap: .6rem; padding: 0; }
@media (min-width: 40rem) { .numbers { grid-template-columns: repeat(3, 1fr); } }
.numbers li { list-style: none; background: var(--soft); border-radius: .4rem; padding: .6rem .8rem; }
.numbers b { display: block; font-size: 1.35rem; line-height: 1.3; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid var(--rule); vertical-align: top; }
th:first-child, td:first-child, .text { text-align: left; }
td code { overflow-wrap: anywhere; }
svg { display: block; width: 100%; max-width: 36rem; height: auto; margin: .8rem 0; }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); }
svg line { stroke: var(--rule); }
.bar { fill: var(--bar); }
.curve { fill: none; stroke: var(--bar); stroke-width: 2; }
pre { background: var(--soft); border-radius: .4rem; padding: .7rem; overflow-x: auto; font-size: .85rem; }
code { font-family: ui-monospace, monospace; font-size: .9em; }
dl { display: grid; grid-template-columns: auto 1fr; gap: 0 1rem; margin: .4rem 0; }
dd { margin: 0; }
footer { margin-top: 2.5rem; font-size: .9rem; border-top: 1px solid var(--rule); }
"""


def write_report(figures: Figures, path: Path) -> None:
    """Write the report."""
    path.write_text(html_of(figures), encoding="utf-8")


def html_of(figures: Figures) -> str:
    """Return the report as HTML."""
    sections = (_summary, _stages, _catalogue, _matches, _stream, _samples, _machine)
    body = "\n".join(section(figures) for section in sections)
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Siftline: wish lists and products on Spark</title>
<style>
{_STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _summary(figures: Figures) -> str:
    rates = {stage.name: stage.rate for stage in figures.stages}
    numbers = [
        ("n_subscriptions", f"{figures.n_subscriptions:,}", "wish lists, as text"),
        ("n_events", f"{figures.n_events:,}", "products matched"),
        ("match_rate", f"{rates.get('match') or 0:,.0f}", "products a second, Parquet to Parquet"),
        ("matches", f"{figures.matches:,}", "matches found"),
        ("n_streamed", f"{figures.n_streamed:,}", "more products streamed while wishes changed"),
        ("seconds", f"{figures.seconds:.0f} s", "in all, start of Spark included"),
    ]
    items = "\n".join(f"<li>{_figure(name, value)} {text}</li>" for name, value, text in numbers)
    return f"""\
<h1>Who wants to hear of this product?</h1>
<p>Every product is an event, every wish list a subscription. Siftline finds, for each event, all subscriptions that it
satisfies; here on Spark, on this machine, with generated data.</p>
<ul class="numbers">
{items}
</ul>"""


def _stages(figures: Figures) -> str:
    slowest = sorted(figures.stages, key=lambda stage: -stage.seconds)
    chart = bars("Seconds by stage", [(stage.name, stage.seconds, f"{stage.seconds:.1f} s") for stage in slowest])
    rows = [
        (
            escape(stage.name),
            _figure(f"seconds-{stage.name}", f"{stage.seconds:.1f}"),
            f"{stage.amount:,} {escape(stage.unit)}" if stage.amount else "",
            _figure(f"rate-{stage.name}", f"{stage.rate:,.0f}") if stage.rate else "",
        )
        for stage in figures.stages
    ]
    return f"""\
<h2>Where the time went</h2>
<p>The slowest stage first.</p>
{chart}
{_table(("stage", "seconds", "amount", "a second"), rows)}
<p><i>start</i> is Spark itself, and the kernels, which are compiled on the first run on a machine and loaded later.
Rates include what Spark needs to begin and end a job.</p>"""


def _catalogue(figures: Figures) -> str:
    shares = figures.shares
    n_attributes = _figure("n_attributes", f"{len(shares):,}")
    title = "Share of products that have an attribute, by its rank"
    chart = log_curve(title, [share for _, share in shares], unit="products that have an attribute, by its rank")
    common = ", ".join(f"<code>{escape(name)}</code> {100 * share:.0f} %" for name, share in shares[:6])
    per_subscription = figures.index_bytes / max(1, figures.n_subscriptions - figures.refused)
    return f"""\
<h2>The catalogue and the index</h2>
<p>The profile found {n_attributes} attributes, texts and numbers, a few of them common and most of them rare:
{common}, …</p>
{chart}
<p>The compiled index has {_figure("index_bytes", f"{figures.index_bytes:,}")} bytes,
{per_subscription:.0f} a subscription; {_figure("refused", f"{figures.refused:,}")} subscriptions were refused.</p>"""


def _matches(figures: Figures) -> str:
    rows = [(_class_label(low, high), float(number), f"{number:,}") for low, high, number in figures.histogram]
    chart = bars("Subscriptions by number of matches", rows)
    top = [(f"<code>{escape(text)}</code>", f"{number:,}") for _, text, number in figures.top]
    return f"""\
<h2>Matches per subscription</h2>
<p>{_figure("subscriptions_told", f"{figures.subscriptions_told:,}")} wish lists have a match, and
{_figure("events_told", f"{figures.events_told:,}")} products; on average a product has
{_figure("matches_per_event", f"{figures.matches / figures.n_events:.1f}")}. Each product was made to satisfy one wish
list: {_figure("planted", f"{figures.planted:,}")} of {figures.n_events:,} such pairs were found.</p>
<p>How many wish lists have so many matches:</p>
{chart}
<h3>The most matches</h3>
{_table(("wish list", "matches"), top)}"""


def _class_label(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _stream(figures: Figures) -> str:
    batches = figures.batches
    seconds = [batch.seconds for batch in batches]
    rows = [(str(number), batch.seconds, f"{batch.seconds:.2f} s") for number, batch in enumerate(batches, start=1)]
    every = max(1, len(rows) // 10)
    chart = columns("Seconds of each micro-batch", rows, unit="seconds, by micro-batch", label_every=every)
    kinds = [
        (
            escape(kind.name),
            _figure(f"changes-{kind.name}", f"{kind.changes:,}"),
            _figure(f"followed-{kind.name}", f"{kind.followed:,}"),
        )
        for kind in figures.kinds
    ]
    meanings = "; ".join(f"<i>{escape(kind.name)}</i>: {escape(kind.meaning)}" for kind in figures.kinds)
    return f"""\
<h2>The stream, while wishes changed</h2>
<p>{_figure("n_batches", str(len(batches)))} files of products arrived one by one, and before each some wish lists were
added, replaced and removed. A micro-batch took {_figure("median_batch", f"{statistics.median(seconds):.2f}")} s
(median), the longest {max(seconds):.2f} s.
{_figure("stream_matches", f"{sum(batch.matches for batch in batches):,}")} matches were written. Meanwhile the changes
so far were merged into the index, in {_figure("compact_seconds", f"{figures.compact_seconds:.1f}")} s.</p>
{chart}
<p>Did the very next micro-batch follow each change?</p>
{_table(("change", "made", "followed"), kinds)}
<p>Followed means: {meanings}.</p>"""


def _samples(figures: Figures) -> str:
    shown = "\n".join(_sample(sample) for sample in figures.samples)
    return f"""\
<h2>Sample notifications, explained</h2>
<p>Each pair of product and wish list is taken from the output above and explained by the engine, condition by
condition.</p>
{shown}"""


def _sample(sample: Sample) -> str:
    values = "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in sample.tree.items())
    told = "yes" if sample.was_told else "no"
    return f"""\
<section data-event="{sample.event}" data-subscription="{sample.subscription}" data-told="{told}">
<h3>{escape(sample.title)}: product {sample.event:,}, wish list {sample.subscription:,}</h3>
<p><code>{escape(sample.expression)}</code></p>
<pre>{escape(sample.explanation)}</pre>
<details><summary>The product: {len(sample.tree)} attributes</summary><dl>{values}</dl></details>
</section>"""


def _machine(figures: Figures) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in figures.machine.items())
    return f"""\
<footer>
<p>One run, with seed {figures.seed}; times vary with what else the machine does.</p>
<dl>{facts}</dl>
</footer>"""


def _figure(name: str, text: str) -> str:
    """Return a number with a name by which it can be found in the page."""
    return f'<b data-figure="{escape(name)}">{escape(text)}</b>'


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table; the cells are HTML."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table>\n<tr>{titles}</tr>\n{body}\n</table></div>'
