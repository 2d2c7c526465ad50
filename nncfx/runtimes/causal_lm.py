"""Generates text in a runtime, from a file written by `nncfx.export.export_causal_lm`."""

import os
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from nncfx.closing import Closing
from nncfx.errors import ArgumentError, RuntimeFailure
from nncfx.runtimes.protocol.named_inputs import InputSpec
from nncfx.runtimes.protocol.runtime import BuildOptions, Runtime
from nncfx.runtimes.registry import runtime_named

Tokens: TypeAlias = npt.NDArray[np.int64]
Choose: TypeAlias = Callable[[npt.NDArray[np.floating[Any]]], Tokens]

_PAST: Final = "past_key_values."


def most_likely(logits: npt.NDArray[np.floating[Any]]) -> Tokens:
    """Return the token with the largest logit in each row (batch x vocabulary).

    >>> most_likely(np.array([[0.0, 2.0, 1.0]])).tolist()
    [1]
    """
    tokens: Tokens = logits.argmax(axis=-1)
    return tokens


class CausalLM(Closing):
    """A language model in a runtime, with its cache; a context manager that closes itself.

    >>> from tempfile import mkdtemp
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> from nncfx.export import export_causal_lm
    >>> sizes = GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=20, n_positions=16)
    >>> file = export_causal_lm(GPT2LMHeadModel(sizes), mkdtemp() + "/gpt2.onnx")
    >>> with CausalLM(file) as language_model:
    ...     language_model.generate([[3, 7]], max_new_tokens=5).shape
    (1, 7)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        runtime: str | Runtime = "onnxruntime",
        *,
        threads: int | None = None,
        settings: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Load the file.

        Args:
            path: A file written by `export_causal_lm`.
            runtime: Its name, or your own `Runtime` that reads ONNX files.
            threads: CPU threads; None leaves the choice to the runtime.
            settings: As in `BuildOptions`.

        Raises:
            RuntimeFailure: The runtime rejects the file, or the file has no cache.
        """
        options = BuildOptions(threads=threads, settings=settings)
        self._session = runtime_named(runtime).build(os.fspath(path), options)
        specs: tuple[InputSpec, ...] = getattr(self._session, "inputs", ())
        self._past = tuple(one for one in specs if one.name.startswith(_PAST))
        if not self._past:
            self.close()
            raise RuntimeFailure(
                f"'{os.fspath(path)}' reads {', '.join(one.name for one in specs)} and no past: "
                "it has no cache. Write it with nncfx.export.export_causal_lm."
            )

    def generate(
        self,
        input_ids: object,
        *,
        attention_mask: object = None,
        max_new_tokens: int = 20,
        eos_token_id: int | None = None,
        pad_token_id: int = 0,
        choose: Choose = most_likely,
    ) -> Tokens:
        """Return the prompts and their continuations, like transformers' `generate`.

        Args:
            input_ids: Batch x length, in an array, a tensor or lists; padded on the left.
            attention_mask: Batch x length: 0 at padding; ones by default.
            max_new_tokens: The most new tokens.
            eos_token_id: Ends a row, which is then filled with `pad_token_id`.
            pad_token_id: See `eos_token_id`.
            choose: Maps the logits of the next token (batch x vocabulary) to the tokens: by
                default the most likely; can be your own sampler.

        Returns:
            Batch x (length + at most `max_new_tokens`).

        Raises:
            ArgumentError: A shape is wrong, or `max_new_tokens` is below 1.
            RuntimeFailure: The runtime fails.
        """
        found = [_matrix(input_ids, "input_ids")]
        done = np.zeros(len(found[0]), dtype=bool)
        for tokens in self.stream(
            input_ids, attention_mask=attention_mask, max_new_tokens=max_new_tokens, choose=choose
        ):
            found.append(np.where(done, pad_token_id, tokens)[:, None])
            done |= tokens == eos_token_id
            if done.all():
                break
        return np.concatenate(found, axis=1)

    def stream(
        self,
        input_ids: object,
        *,
        attention_mask: object = None,
        max_new_tokens: int = 20,
        choose: Choose = most_likely,
    ) -> Iterator[Tokens]:
        """Return an iterator of the next tokens (one a row), each as soon as it is computed.

        Arguments and errors are those of `generate`.
        """
        ids = _matrix(input_ids, "input_ids")
        mask = np.ones_like(ids)
        if attention_mask is not None:
            mask = _matrix(attention_mask, "attention_mask")
        if mask.shape != ids.shape or max_new_tokens < 1:
            raise ArgumentError(
                f"input_ids are of shape {ids.shape}, attention_mask of {mask.shape}, and "
                f"max_new_tokens is {max_new_tokens}. Both have one shape, and it is at least 1."
            )
        return self._stream(ids, mask, max_new_tokens, choose)

    def _stream(
        self, ids: Tokens, mask: Tokens, max_new_tokens: int, choose: Choose
    ) -> Iterator[Tokens]:
        past = {one.name: _empty(one, len(ids)) for one in self._past}
        for _ in range(max_new_tokens):
            inputs = {"input_ids": ids, "attention_mask": mask, **past}
            logits, *present = self._session.run(inputs)
            tokens = choose(logits[:, -1])  # type: ignore[arg-type]  # logits are floats
            yield tokens
            past = dict(zip(past, present, strict=True))
            ids = tokens[:, None]
            mask = np.concatenate([mask, np.ones_like(ids)], axis=1)

    @override
    def close(self) -> None:
        """Release the resources of the runtime."""
        self._session.close()


def _matrix(value: object, name: str) -> Tokens:
    array = value.numpy(force=True) if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.ndim != 2 or array.size == 0:  # noqa: PLR2004 (batch x length)
        raise ArgumentError(
            f"{name} are of shape {array.shape}; they are batch x length: [[1, 2, 3]] is a "
            "batch of one."
        )
    return array.astype(np.int64)


def _empty(spec: InputSpec, batch: int) -> npt.NDArray[Any]:
    _, heads, _, width = spec.shape
    return np.zeros((batch, heads or 1, 0, width or 1), dtype=spec.dtype)
