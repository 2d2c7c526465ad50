"""Promises of nncfx.tracing.hooks.sites."""

import pytest

from nncfx.tracing import PostSite, PreSite, Priority, Site, WeightSite


def test_priorities_are_the_numbers_of_nncf() -> None:
    # facts/nncf.md, section 3.2
    assert [int(one) for one in Priority] == [0, 1, 2, 3, 11]


@pytest.mark.parametrize(
    ("site", "text", "key"),
    [
        (WeightSite("a.b", "weight"), "a.b.weight", "a:b|weight"),
        (WeightSite("", "scale"), "scale", "|scale"),
        (PreSite("Net/relu_0", 1), "Net/relu_0|INPUT1", "Net/relu_0|INPUT1"),
        (PostSite("Net/relu_0"), "Net/relu_0|OUTPUT0", "Net/relu_0|OUTPUT0"),
    ],
)
def test_a_site_is_shown_as_text_and_has_a_key_without_dots(
    site: Site, text: str, key: str
) -> None:
    assert (str(site), site.key) == (text, key)


@pytest.mark.parametrize("name", ["layer.0.weight", "scale"])
def test_a_weight_site_is_read_from_a_dotted_name(name: str) -> None:
    assert str(WeightSite.of(name)) == name
