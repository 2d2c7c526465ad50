"""Reads descriptions that users wrote as arguments."""

from typing import TypeVar

from nncfx.errors import ArgumentError, StorageError
from nncfx.json_codec import decode, load_object

Description = TypeVar("Description")


def read_description(kind: type[Description], text: str) -> Description:
    """Return the `Target` or `Hardware` that the JSON `text` describes.

    Raises:
        ArgumentError: it is not JSON, lacks a field, or has one that is unknown or of another
            type; names the JSON paths. Or it uses an unknown name.
    """
    what = f"{kind.__name__.lower()} description"
    try:
        return decode(kind, load_object(text, what))
    except StorageError as error:
        raise ArgumentError(
            f"The {what} has faults: {error} {kind.__name__}.to_json() shows how one is written."
        ) from error
