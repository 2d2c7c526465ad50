"""What `with` closes at the end of its block."""

import abc
from typing import Self


class Closing(abc.ABC):
    """Anything that holds files, processes or sessions until it is closed.

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
        """Free what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
