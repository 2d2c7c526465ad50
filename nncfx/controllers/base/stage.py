"""The stage of compression, to check before comparing checkpoints."""

from enum import IntEnum


class CompressionStage(IntEnum):
    """NNCF's stages; compare only checkpoints of one stage, since accuracy falls with the level.

    >>> CompressionStage.of(0.2, 0.5)
    <CompressionStage.PARTIALLY_COMPRESSED: 1>
    """

    UNCOMPRESSED = 0
    PARTIALLY_COMPRESSED = 1
    FULLY_COMPRESSED = 2

    @classmethod
    def of(cls, level: float, final: float) -> "CompressionStage":
        """Return the stage at `level` of a schedule that ends at `final`."""
        if level >= final:
            return cls.FULLY_COMPRESSED
        return cls.PARTIALLY_COMPRESSED if level > 0 else cls.UNCOMPRESSED

    def together(self, other: "CompressionStage") -> "CompressionStage":
        """Return the stage of two algorithms on one model: their common stage, or partial."""
        return self if self is other else CompressionStage.PARTIALLY_COMPRESSED
