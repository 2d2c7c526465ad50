"""A failure of torch's exporter becomes one paragraph: what, where, why, and the mend."""

import nncfx.tracing.call_numbers
from nncfx.export.export_failure import as_export_error


def chained(*texts: str) -> RuntimeError:
    error: RuntimeError | None = None
    for text in reversed(texts):
        outer = RuntimeError(text)
        outer.__cause__ = error
        error = outer
    assert error is not None
    return error


def test_the_operation_is_found_anywhere_in_the_chain() -> None:
    error = chained(
        "outer", "No ONNX function found for <OpOverload(op='aten.foo', overload='x')>"
    )
    assert "operation 'aten.foo' has no ONNX form" in str(as_export_error(error, model="Net"))


def test_the_line_of_the_model_is_given() -> None:
    error = chained('it failed\n  File "/a/net.py", line 12, in forward\n    x = x.foo()\n')
    text = str(as_export_error(error, model="Net"))
    assert text == (
        "Net cannot be exported at /a/net.py:12 in forward, `x = x.foo()`: RuntimeError: it failed"
    )


def test_it_is_not_a_line_of_the_hooks_around_the_model_s_own() -> None:
    text = str(
        as_export_error(
            chained(
                'it failed\n  File "/a/net.py", line 12, in forward\n    x = x.foo()\n'
                f'  File "{nncfx.tracing.call_numbers.__file__}", line 84, in f\n    return g()\n'
            ),
            model="Net",
        )
    )
    assert "at /a/net.py:12 in forward" in text
    assert "call_numbers" not in text


def test_a_failure_without_a_text_is_still_a_sentence() -> None:
    text = str(as_export_error(ValueError(), model="Net"))
    assert text == "Net cannot be exported: ValueError: no reason given"


def test_colours_of_the_terminal_are_taken_out() -> None:
    text = str(as_export_error(ValueError("\x1b[96mThis is step 1/3\x1b[0m"), model="Net"))
    assert text == "Net cannot be exported: ValueError: This is step 1/3"
