"""Keys and values in a byte each."""

import inspect
from collections.abc import Callable
from functools import partial

import pytest
import torch
import transformers
from torch import Tensor, nn

from language_models import language_model
from nncfx.errors import ArgumentError
from nncfx.integrations.kv_cache import ByteCache, ByteLayer, CacheFormat

_PARAMETERS = inspect.signature(transformers.LlamaForCausalLM.forward).parameters
NAME = next(one for one in ("cache", "past_key_values") if one in _PARAMETERS)
"""What models call their cache: since transformers 5.24, and before."""

FORMATS: tuple[CacheFormat, ...] = ("int8", "float8_e4m3")


small = partial(
    language_model, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64
)


def tokens() -> Tensor:
    return torch.randint(2, 90, (3, 10), generator=torch.Generator().manual_seed(0))


def states(*shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator) * 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_each_number_is_at_most_half_a_step_off(dtype: torch.dtype) -> None:
    """A step is the largest of a token's head by 127; half precision rounds once more."""
    given = [one.to(dtype) for one in states(2, 3, 7, 40)]
    unit = {torch.float32: 2.0**-20, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-8}[dtype]
    for exact, found in zip(given, ByteLayer().update(*given), strict=True):
        assert found.dtype == dtype
        peak = exact.float().abs().amax(-1, keepdim=True)
        assert ((found.float() - exact.float()).abs() <= peak * (0.5 / 127 + unit)).all()


def test_float8_is_at_most_a_sixteenth_off_where_it_is_normal() -> None:
    """Three bits behind the point: half of 2^-3 of the number; below 2^-6 a step is 2^-9."""
    exact, _ = states(2, 3, 7, 40)
    found, _ = ByteLayer("float8_e4m3").update(exact, exact)
    step = exact.abs().amax(-1, keepdim=True) / 448
    assert ((found - exact).abs() <= exact.abs() / 16 * 1.0001 + step * 2.0**-10).all()


def test_by_hand_codes_are_shares_of_the_largest() -> None:
    layer = ByteLayer()
    layer.update(torch.tensor([[[[1.27, -0.64, 0.0, 0.013]]]]), torch.zeros(1, 1, 1, 2))
    assert layer.keys.dtype == torch.int8
    assert layer.keys.flatten().tolist() == [127, -64, 0, 1]
    torch.testing.assert_close(layer.key_scale.flatten(), torch.tensor([0.01]))
    assert layer.values.flatten().tolist() == [0, 0]


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 0.30), (torch.bfloat16, 0.55), (torch.float16, 0.55)]
)
def test_memory_is_a_quarter_of_float32_and_a_half_of_bfloat16(
    dtype: torch.dtype, most: float, format_name: CacheFormat
) -> None:
    model = small().to(dtype)
    float_cache = transformers.DynamicCache(config=model.config)
    cache = ByteCache(model, format_name)
    with torch.no_grad():
        for one in (float_cache, cache):
            model(tokens(), **{NAME: one})
    exact = sum(one.keys.nbytes + one.values.nbytes for one in float_cache.layers)
    assert cache.size_bytes <= most * exact


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_a_text_token_by_token_reads_what_the_whole_text_does(
    kind: str, format_name: CacheFormat
) -> None:
    model, given = small(kind), tokens()
    with torch.no_grad():
        exact = model(given).logits
        whole = model(given, **{NAME: ByteCache(model, format_name)}).logits
        cache = ByteCache(model, format_name)
        steps = [model(one, **{NAME: cache}).logits for one in given.split([4, 1, 5], 1)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-3, atol=1e-3)
    error = (whole - exact).square().mean() / exact.square().mean()
    assert 0 < error < (1e-3 if format_name == "int8" else 2e-2)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_generate_takes_it(kind: str) -> None:
    """Step by step from the same cache by hand."""
    model, cache, by_hand = small(kind), None, tokens()
    cache = ByteCache(model)
    found = model.generate(
        tokens(), **{NAME: cache}, max_new_tokens=5, do_sample=False, pad_token_id=0,
        eos_token_id=None,
    )  # fmt: skip
    assert cache.get_seq_length() == 14
    assert cache.layers[0].keys.dtype == torch.int8
    own, entering = ByteCache(model), by_hand
    with torch.no_grad():
        for _ in range(5):
            entering = model(entering, **{NAME: own}).logits[:, -1:].argmax(-1)
            by_hand = torch.cat([by_hand, entering], 1)
    assert torch.equal(found, by_hand)


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
@pytest.mark.parametrize("name", sorted({NAME, "past_key_values"}))
def test_both_names_of_the_argument_take_it(name: str) -> None:
    model = small()
    cache = ByteCache(model)
    options = {"max_new_tokens": 2, "pad_token_id": 0, "eos_token_id": None}
    model.generate(tokens(), **{name: cache}, **options)
    assert cache.get_seq_length() == 11


@pytest.mark.parametrize("format_name", FORMATS)
def test_beams_are_those_of_a_model_that_rounds_its_keys_and_values(
    format_name: CacheFormat,
) -> None:
    """An own float cache, whose keys and values are rounded on their way, finds the same."""

    class Rounding(transformers.cache_utils.DynamicLayer):  # type: ignore[name-defined,misc]
        def update(self, key: Tensor, value: Tensor, **_: object) -> tuple[Tensor, Tensor]:
            return super().update(*ByteLayer(format_name).update(key, value))

    model = small()
    reference = transformers.cache_utils.Cache(layers=[Rounding(), Rounding()])
    found, wanted = (
        model.generate(
            tokens(), **{NAME: one}, max_new_tokens=8, num_beams=3, do_sample=False,
            pad_token_id=0, eos_token_id=None,
        )
        for one in (ByteCache(model, format_name), reference)
    )  # fmt: skip
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("format_name", FORMATS)
def test_rows_are_chosen_repeated_and_cropped_with_their_scales(format_name: CacheFormat) -> None:
    keys, values = states(3, 2, 6, 8)
    layer = ByteLayer(format_name)
    kept, _ = layer.update(keys, values)
    layer.reorder_cache(torch.tensor([2, 0, 0]))
    layer.batch_select_indices(torch.tensor([0, 1]))
    layer.batch_repeat_interleave(2)
    layer.crop(0)
    layer.crop(-2)
    assert layer.get_seq_length() == 4
    more = torch.ones(4, 2, 1, 8)
    found, _ = layer.update(more, more)
    assert torch.equal(found[:, :, :4], kept[[2, 2, 0, 0], :, :4])
    torch.testing.assert_close(found[:, :, 4:], more)
    layer.reset()
    assert layer.get_seq_length() == layer.size_bytes == 0
    assert layer.update(keys, values)[0].shape == keys.shape


def test_an_empty_layer_can_be_cropped_and_reordered() -> None:
    layer = ByteLayer()
    layer.crop(-3)
    layer.reorder_cache(torch.tensor([0]))
    assert layer.get_seq_length() == 0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"no cache format 'int9'\. Did you mean 'int8'"):
        ByteCache(small(), "int9")  # type: ignore[arg-type]
    windowed = small()
    windowed.config.layer_types = ["sliding_attention", "full_attention"]
    windowed.config.sliding_window = 4
    with pytest.raises(ArgumentError, match=r"DynamicSlidingWindowLayer.*cache in float"):
        ByteCache(windowed)
    layer = ByteLayer()
    with pytest.raises(ArgumentError, match="Write -2"):
        layer.crop(2)


def t5() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=90, d_model=64, d_kv=32, d_ff=96, num_layers=2, num_heads=2,
        decoder_start_token_id=0, initializer_factor=4.0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config).eval()


def bart() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BartConfig(
        vocab_size=90, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=96, decoder_ffn_dim=96, init_std=0.2,
        max_position_embeddings=64, forced_eos_token_id=None,
    )  # fmt: skip
    return transformers.BartForConditionalGeneration(config).eval()


@pytest.mark.parametrize("make", [t5, bart])
def test_an_encoder_decoder_keeps_bytes_of_its_own_tokens_alone(
    make: Callable[[], nn.Module],
) -> None:
    """One cache for both would hold the encoder's tokens among the decoder's."""
    model = make()
    with pytest.raises(ArgumentError, match=r"has an encoder.*only_self_attention=True"):
        ByteCache(model)
    own = ByteCache(model, only_self_attention=True)
    both = transformers.EncoderDecoderCache(own, transformers.DynamicCache())
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    found = model.generate(tokens(), **{NAME: both}, **options)
    assert own.get_seq_length() == 6  # the start and all but the last
    assert own.layers[0].keys.dtype == torch.int8
    assert torch.equal(found, model.generate(tokens(), **options))


def test_a_model_with_a_state_in_place_of_keys_is_refused() -> None:
    config = transformers.RwkvConfig(vocab_size=90, hidden_size=32, num_hidden_layers=2)
    with pytest.raises(ArgumentError, match="recurrent states"):
        ByteCache(transformers.RwkvForCausalLM(config))
