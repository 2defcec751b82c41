"""The page itself: the report's HTML, with style, script, figures and data inside."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files

from anchormoe import __version__
from anchormoe.report import audit, figures, theory
from anchormoe.report.answers import Answer, answers
from anchormoe.report.audit import Finding
from anchormoe.report.figures import Drawn
from anchormoe.report.figures.style import inline_svg
from anchormoe.report.html import payload
from anchormoe.report.html.payload import RerunCommand
from anchormoe.report.selection import Selection

# Nothing may be fetched, whatever a name in the data tries.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def build(selection: Selection, rerun: RerunCommand) -> str:
    """Return the report as one HTML text; `rerun` finds the command that computes a run again."""
    with figures.house_style():
        sections = [section for section in _sections(selection) if section is not None]
        pictures = {
            name: [_packed_figure(drawn) for drawn in figures.dataset_figures(selection, name)]
            for name in selection.compared.datasets
        }
        opening = _opening(answers(selection), list(figures.answer_figures(selection)))
    pictures = {name: drawn for name, drawn in pictures.items() if drawn}
    navigation = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, _ in sections)
    body = "".join(
        f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{title}</h2>{inside}</section>'
        for key, title, inside in sections
    )
    return _part("parts/page.html").format(
        policy=html.escape(_POLICY),
        title="Anchor-MoE: does it hold, and which method to try"
        if selection.paper
        else "Which method to try: results of your runs",
        lead=_lead(selection),
        style=_part("style.css"),
        script=_part("script.js"),
        navigation=navigation,
        opening=opening,
        body=body,
        dialog=_part("parts/dialog.html"),
        data=payload.packed(payload.build(selection, rerun)),
        pictures=payload.packed(pictures),
        version=html.escape(__version__),
    )


def _part(name: str) -> str:
    return files("anchormoe.report.html").joinpath(name).read_text(encoding="utf-8")


def _lead(selection: Selection) -> str:
    compared = selection.compared
    numbers = f"{len(selection.rows):,} stored splits, {len(compared.methods)} methods, "
    numbers += _count(len(compared.datasets), "dataset")
    if selection.paper:
        return (
            "Probabilistic regression of tables: every row gets a distribution. The paper’s numbers, computed "
            "again and compared with other "
            f"methods on the same splits: {numbers}, at most 20 splits of each. In tables of scores "
            "lower is better."
        )
    protocol = html.escape(selection.protocol)
    compared_on = f"Methods compared on the same splits: {numbers}, protocol {protocol}."
    return f"{compared_on} In tables of scores lower is better."


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _opening(found: Sequence[Answer], drawn: Sequence[Drawn]) -> str:
    """Write the answers, each beside its picture."""
    pictures = [*drawn, *[None] * len(found)]
    items = []
    for answer, picture in zip(found, pictures, strict=False):
        shown = _figure(picture, with_head=False) if picture else ""
        items.append(
            f"<li><div><h3>{html.escape(answer.title)}</h3><p>{html.escape(answer.text)}</p></div>{shown}</li>"
        )
    return f'<ol class="answers">{"".join(items)}</ol>'


def _figure(drawn: Drawn, *, with_head: bool = True) -> str:
    picture = inline_svg(drawn.figure, drawn.name, f"{drawn.title}. {drawn.caption}")
    title = html.escape(drawn.title)
    wide = " wide" if drawn.figure.get_size_inches()[0] > 6 else ""
    head = f'<div class="head"><h3{"" if with_head else " class=visually-hidden"}>{title}</h3></div>'
    return (
        f'<figure data-name="{html.escape(drawn.name)}">{head}<div class="picture{wide}" tabindex="0" role="group" '
        f'aria-label="{title}">{picture}</div>'
        f"<figcaption>{html.escape(drawn.caption)}</figcaption></figure>"
    )


def _packed_figure(drawn: Drawn) -> dict[str, str]:
    picture = inline_svg(drawn.figure, drawn.name, f"{drawn.title}. {drawn.caption}")
    return {"name": drawn.name, "title": drawn.title, "caption": drawn.caption, "svg": picture}


Section = tuple[str, str, str]


def _sections(selection: Selection) -> Iterable[Section | None]:
    """Yield the sections after the opening: key, title, content."""
    yield (
        "compare",
        "Compare the methods",
        _part("parts/comparison.html").format(mixed=_MIXED if selection.paper else ""),
    )
    if selection.paper:
        yield "paper-holds", "Every published number", _part("parts/check.html")
    yield _gallery("ranks", "Across datasets", _ACROSS_LEAD, figures.across_figures(selection))
    yield "datasets", "Dataset by dataset", _part("parts/datasets.html")
    if selection.paper:
        yield "audit", "The audit", _audit(audit.audit(selection.table_rows))
        yield _gallery("paper-figures", "The paper’s figures", _PAPER_LEAD, figures.paper_figures())
    if len(selection.theory):
        yield "theory", "The theory, by simulation", _theory(selection)
    yield "runs", "Every run", _part("parts/runs.html")


def _gallery(key: str, title: str, lead: str, drawn: Iterable[Drawn]) -> Section | None:
    shown = "".join(map(_figure, drawn))
    return (key, title, f'<p>{lead}</p><div class="figures large">{shown}</div>') if shown else None


def _theory(selection: Selection) -> str:
    """Write the table of verdicts, and a figure for each theorem."""
    heads = "".join(f'<th scope="col" class="wrap">{html.escape(head)}</th>' for head in theory.HEADS)
    lines = ""
    for claim in theory.claims(selection.theory):
        cells = "".join(f'<td class="wrap">{html.escape(text)}</td>' for text in theory.cells(claim))
        lines += f"<tr>{cells}</tr>"
    shown = "".join(map(_figure, figures.theory_figures(selection)))
    return _part("parts/theory.html").format(heads=heads, lines=lines, figures=shown)


def _audit(findings: Sequence[Finding]) -> str:
    confirmed = sum(finding.confirmed is True for finding in findings)
    recomputed = sum(finding.confirmed is not None for finding in findings)
    lines = "".join(map(_finding, findings))
    text = _part("parts/audit.html")
    return text.format(count=len(findings), recomputed=recomputed, confirmed=confirmed, lines=lines)


def _finding(finding: Finding) -> str:
    texts = (html.escape(finding.paper), html.escape(finding.found), html.escape(finding.evidence) or _READ)
    cells = "".join(f'<td class="wrap">{text}</td>' for text in texts)
    start = f'<tr><th scope="row">{finding.id}</th><td class="text">{finding.part}</td>'
    return f'{start}{cells}<td class="text">{_status(finding)}</td></tr>'


_READ = '<span class="muted">read off the authors’ notebooks</span>'


def _status(finding: Finding) -> str:
    if finding.confirmed is None:
        return "read"
    return (
        '<span class="verdict pass">confirmed</span>'
        if finding.confirmed
        else '<span class="verdict off">not confirmed</span>'
    )


_ACROSS_LEAD = "How methods rank, what they gain and what they cost, over all datasets at once."
_PAPER_LEAD = "The paper’s source names no image files. These are drawn anew from the constants of its authors."
_MIXED = '<label><input type="radio" name="unit" value="mixed"> mixed, as the paper’s table</label>'
