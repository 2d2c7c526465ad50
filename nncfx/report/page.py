"""Renders the evidence of a run as one self-contained HTML page."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nncfx.errors import needing
from nncfx.evidence.evidence import Evidence
from nncfx.report.chart import study_charts
from nncfx.report.claims import checks, headline, warning
from nncfx.report.downloads import artefacts, downloads
from nncfx.report.exported import exported_table
from nncfx.report.format import moment_text, shortened, titled
from nncfx.report.network import histograms, network_tree
from nncfx.report.pareto import scatters
from nncfx.report.tables import layer_table, summary_table, trial_table
from nncfx.report.words import explained
from nncfx.runtimes import call_words
from nncfx.storage.formats.whole_file import write_text

if TYPE_CHECKING:
    import jinja2


def render_report(evidence: Evidence) -> str:
    """Return the report of `evidence` as one HTML page.

    The page is self-contained: it includes style and charts (SVG), has no script, and its content
    security policy forbids everything else. It is legible in light and dark mode, on a phone and
    on paper. An unfinished run, as given by the `state` of the evidence, also has a page. The same
    evidence gives the same page, byte for byte.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    studies = [
        {
            "study": study,
            "key": f"study{number}",
            "charts": study_charts(study, evidence.metric, f"study{number}"),
            "trials": trial_table(study, evidence.metric),
        }
        for number, study in enumerate(evidence.studies, start=1)
    ]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            evidence=evidence,
            headline=headline(evidence),
            warning=warning(evidence),
            call=call_words(evidence.batch, evidence.threads),
            checks=checks(evidence),
            summary=summary_table(evidence),
            exported=exported_table(evidence),
            studies=studies,
            layers=layer_table(evidence.layers),
            fronts=scatters(evidence),
            tree=network_tree(evidence),
            histograms=histograms(evidence.weights),
            downloads=downloads(evidence),
            artefacts=artefacts(evidence),
            has_kernels=any(row.kernel for row in evidence.layers),
            has_times=any(row.time_before_ms or row.time_after_ms for row in evidence.layers),
        )
    )


def environment() -> "jinja2.Environment":
    """Return the environment that renders the templates of pages.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    with needing("jinja2", "report", "writing a report"):
        import jinja2
        import markupsafe
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("nncfx.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        titled=titled, moment=moment_text, shortened=shortened, word=_word(markupsafe.Markup)
    )
    return found


def _word(markup: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a filter that explains a word, if it is in `WORDS`, in a tooltip."""

    def explain(text: str) -> Any:  # noqa: ANN401 (escaped text of jinja2)
        meaning = explained(text)
        if not meaning:
            return text
        made = markup('<abbr tabindex="0" data-means="{}">{}</abbr>')
        return made.format(meaning, text)

    return explain


def write_report(path: str | Path, evidence: Evidence) -> Path:
    """Write the report of `evidence` to `path` as one HTML file and return the path.

    Missing folders are created; the file is written completely or not at all.

    Raises:
        MissingExtraError: jinja2 is not installed.
        StorageError: The path cannot be written.
    """
    return write_text(path, render_report(evidence))
