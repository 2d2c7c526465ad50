"""Base class of context managers that close themselves."""

import abc
from typing import Self


class Closing(abc.ABC):
    """Base class of objects that hold files, processes or sessions until they are closed.

    >>> class Door(Closing):
    ...     def close(self):
    ...         print("closed")
    >>> with Door():
    ...     print("inside")
    inside
    closed
    """

    @abc.abstractmethod
    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
