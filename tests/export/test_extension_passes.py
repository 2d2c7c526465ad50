"""Passes of other packages: where they run, and what is refused."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from nncfx.errors import ArgumentError, ExportError
from nncfx.export import PASSES, ExportPass, extension_passes, register_export_pass
from nncfx.export.extension_passes import find_passes, unregister_export_pass, with_added

OWN = ExportPass(name="own", reason="of a test", run=lambda _: None)


@pytest.fixture(autouse=True)
def _registered_for_one_test() -> Iterator[None]:
    yield
    unregister_export_pass("own")
    find_passes.cache_clear()


def test_a_registered_pass_runs_before_the_one_that_it_names() -> None:
    register_export_pass(OWN, before="write_pairs")
    names = [one.name for one in with_added(PASSES)]
    assert names[names.index("own") + 1] == "write_pairs"
    assert [name for name in names if name != "own"] == [one.name for one in PASSES]
    unregister_export_pass("own")
    assert with_added(PASSES) == PASSES


@pytest.mark.parametrize(
    ("one", "before", "words"),
    [
        (OWN, "write_pear", "not a pass. Passes are upcast_to_float32, "),
        (ExportPass(name="write_pairs", reason="", run=print), "store_weights", "another name"),
        (
            ExportPass(name="own", reason="", run=print, ensures=("tidy",)),
            "store_weights",
            "property 'tidy', which does not exist",
        ),
    ],
)
def test_what_cannot_run_is_refused(one: ExportPass, before: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        register_export_pass(one, before=before)
    assert with_added(PASSES) == PASSES


def test_a_package_whose_pass_cannot_be_imported_stops_the_export(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file without the pass would be another one."""
    broken = EntryPoint("tidy", "no_such_package.passes", extension_passes.GROUP)
    monkeypatch.setattr(extension_passes, "entry_points", lambda **_: [broken])
    find_passes.cache_clear()
    with pytest.raises(ExportError, match=r"'tidy'.*No module named 'no_such_package'"):
        with_added(PASSES)
