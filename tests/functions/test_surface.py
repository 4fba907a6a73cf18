"""Every public function is in a table of tests: of values, and of derivatives or of reasons.

A function that is added to lamina fails here until a table names it.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

import lamina as lm
from lamina import Tensor, nn, random
from lamina.frontend import OPERATORS as ATTACHED
from lamina.nn import optim, schedules
from tests.functions import test_array_values, test_derivatives, test_elementwise_values
from tests.functions.pytorch_cases import CASES
from tests.functions.tables import MOVEMENT, REDUCTIONS

TESTS = Path(__file__).parents[1]

# Tested by name in a file of their own: value against NumPy, PyTorch or a definition.
FILES: dict[str, str] = {
    "functions/test_convolution.py": "conv1d conv2d conv_transpose2d",
    "functions/test_pooling.py": """max_pool1d max_pool2d avg_pool1d avg_pool2d max_unpool1d
        max_unpool2d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d
        adaptive_max_pool2d""",
    "functions/test_resizing.py": "interpolate",
    "functions/test_normalization.py": """batch_norm dropout group_norm instance_norm layer_norm
        rms_norm""",
    "functions/test_lookup.py": "embedding one_hot",
    "functions/test_scatter.py": """index_add index_copy index_fill index_reduce index_select put
        scatter_add scatter_reduce""",
    "functions/test_losses.py": """binary_cross_entropy binary_cross_entropy_with_logits
        cosine_similarity cross_entropy huber_loss kl_div l1_loss mse_loss nll_loss
        smooth_l1_loss""",
    "functions/test_attention.py": "scaled_dot_product_attention",
    "functions/test_activations.py": """alpha_dropout bilinear celu feature_alpha_dropout glu
        gumbel_softmax hardshrink hardtanh linear normalize prelu rrelu selu softmin softshrink
        tanhshrink threshold""",
    "functions/test_margin_losses.py": """cosine_embedding_loss ctc_loss gaussian_nll_loss
        hinge_embedding_loss margin_ranking_loss multi_margin_loss multilabel_margin_loss
        multilabel_soft_margin_loss poisson_nll_loss soft_margin_loss triplet_margin_loss
        triplet_margin_with_distance_loss""",
    "functions/test_vision.py": """affine_grid channel_shuffle embedding_bag fold grid_sample
        local_response_norm pixel_shuffle pixel_unshuffle unfold""",
    "functions/test_sorting.py": "unique unique_all unique_counts unique_inverse unique_values",
    "functions/test_array_values.py": "isdtype full full_like",
    "functions/test_beyond_standard.py": """allclose array_equal broadcast_shapes complex logspace
        polar tril_indices triu_indices view_as_complex view_as_real""",
    "tensor/test_elementwise.py": """elu gelu hardsigmoid hardswish leaky_relu logsigmoid mish relu
        relu6 sigmoid silu softplus softsign result_type""",
    "tensor/test_reduction.py": "matrix_norm",
    "tensor/test_movement.py": "arange linspace eye",
    "tensor/test_interop.py": """__array_namespace_info__ asarray astype can_cast finfo from_dlpack
        iinfo""",
    "tensor/test_handle.py": "grad gradient realize value_and_grad",
}
# Tested under names that a loop over ranks makes: `f"conv_transpose{rank}d"`.
BY_RANK = {
    "functions/test_convolution.py": ("conv3d", "conv_transpose1d", "conv_transpose3d"),
    "functions/test_pooling.py": ("max_pool3d", "avg_pool3d", "adaptive_avg_pool3d",
                                  "adaptive_max_pool3d", "max_unpool3d"),
    "functions/test_activations.py": ("dropout1d", "dropout2d", "dropout3d"),
    "functions/test_vision.py": ("lp_pool1d", "lp_pool2d", "lp_pool3d"),
}  # fmt: skip
NO_VALUE = {
    "default_device": "says what the options say; used by every test that names a device",
    "empty_cache": "returns memory; tested with the buffers",
    "memory_stats": "counts memory; tested with the buffers",
    "set_options": "changes the options of the process; `using` does so for a test",
    "using": "a context of options; every folder's conftest runs its tests in one",
}

WHOLE_NUMBERS = """__array_namespace_info__ all allclose any argmax argmin argsort argwhere
    array_equal bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift
    bitwise_xor broadcast_shapes bucketize can_cast count_nonzero equal finfo greater greater_equal
    iinfo isclose isdtype isfinite isin isinf isnan isneginf isposinf less less_equal logical_and
    logical_not logical_or logical_xor nonzero not_equal one_hot result_type searchsorted
    signbit"""
CREATION = """arange asarray empty empty_like eye from_dlpack full full_like linspace logspace ones
    ones_like tril_indices triu_indices zeros zeros_like"""
NO_DERIVATIVE: dict[str, str] = {
    **dict.fromkeys(WHOLE_NUMBERS.split(), "the result is no float"),
    **dict.fromkeys(CREATION.split(), "made from what is no tensor, or from its shape alone"),
    **dict.fromkeys(("unique", "unique_all", "unique_consecutive", "unique_counts",
                     "unique_inverse",
                     "unique_values"),
                    "the shape depends on the values, so they are computed at once"),
    **dict.fromkeys(("bincount", "histc", "histogram", "mode"), "counts of elements"),
    **dict.fromkeys(("complex", "polar", "view_as_complex", "view_as_real"),
                    "derivatives through complex numbers are refused"),
    **dict.fromkeys(("grad", "gradient", "realize", "value_and_grad", *NO_VALUE),
                    "no function of tensors; tests/tensor/test_handle.py differentiates twice"),
    "imag": "0 for floats; derivatives through complex numbers are refused",
}  # fmt: skip

METHODS: dict[str, str] = {
    "tensor/test_handle.py": """assign backward detach device grad is_realized item node of
        realize requires_grad to tolist""",
    "tensor/test_interop.py": "numpy shape dtype mT T",
    "functions/test_elementwise_values.py": "real imag",
    "functions/test_handle_methods.py": "bitcast cast clone contiguous nbytes ndim size to_device",
}
INTERNAL = {
    "assigned": "what an assignment leaves to realize", "target": "what an assignment writes",
    "rebind": "what `realize` and `jit` do to handles",
    "handle": "by which the session knows a tensor", "serial": "the order in which they were made",
}  # fmt: skip


def functions(module: object, names: list[str]) -> set[str]:
    """The public names that are functions."""
    return {
        name for name in names
        if isinstance(value := getattr(module, name), Callable) and not isinstance(value, type)  # type: ignore[arg-type]
    }  # fmt: skip


@functools.cache
def words(file: str) -> frozenset[str]:
    """Every identifier and every text of a test file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((TESTS / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return frozenset(found)


PUBLIC = functions(lm, lm.__all__)
# Derivatives beside PyTorch's, or where it has none by differences in the file named.
BESIDE = {name for name, cases in CASES.items() if any(case.derivatives for case in cases)}
BY_DIFFERENCES = {
    "bessel_j0": "functions/test_special.py", "bessel_j1": "functions/test_special.py",
    "spherical_bessel_j0": "functions/test_special.py",
    "heaviside": "functions/test_beyond_standard.py",
    "nanmedian": "functions/test_beyond_standard.py",
    "nanquantile": "functions/test_beyond_standard.py",
    "vander": "functions/test_beyond_standard.py",
}  # fmt: skip
VALUES: dict[str, set[str]] = {
    "elementwise": {*test_elementwise_values.UNARY, *test_elementwise_values.BINARY,
                    *test_elementwise_values.CHOICES},
    "arrays": {*MOVEMENT, *REDUCTIONS},
    "beside": set(CASES),
    "creation": {*test_array_values.LIKE, *test_array_values.MADE},
    "files": {name for names in FILES.values() for name in names.split()},
    "ranks": {name for names in BY_RANK.values() for name in names},
    "reasons": set(NO_VALUE),
}  # fmt: skip


def test_every_function_has_a_test_of_its_values() -> None:
    tested = set.union(*VALUES.values())
    lacks = sorted(PUBLIC - tested)
    assert not lacks, f"tests/functions/test_elementwise_values.py or another table lacks {lacks}"
    assert tested == PUBLIC


def test_every_function_has_a_test_of_its_derivative_or_a_reason() -> None:
    tested = set(test_derivatives.TABLE) | BESIDE | set(BY_DIFFERENCES)
    lacks = sorted(PUBLIC - tested - set(NO_DERIVATIVE))
    assert not lacks, f"tests/functions/test_derivatives.py or NO_DERIVATIVE lacks {lacks}"
    assert tested | set(NO_DERIVATIVE) == PUBLIC
    assert not tested & set(NO_DERIVATIVE)
    assert all(name in words(file) for name, file in BY_DIFFERENCES.items())


@pytest.mark.parametrize("file", FILES)
def test_files_name_what_they_test(file: str) -> None:
    assert set(FILES[file].split()) <= words(file)


@pytest.mark.parametrize("file", BY_RANK)
def test_files_make_the_names_of_what_they_test(file: str) -> None:
    """The fixed part of each name before the rank is there."""
    for name in BY_RANK[file]:
        start = name[: -len("1d")]
        assert any(word.endswith(start) or start.endswith(word) for word in words(file) if word)


def test_every_method_is_a_tested_function_or_is_tested() -> None:
    own = {name for names in METHODS.values() for name in names.split()} | set(INTERNAL)
    for name in dir(Tensor):
        if name.startswith("_") or name in own:
            continue
        assert name in PUBLIC, f"Tensor.{name} is no function and has no test of its own"
        assert getattr(Tensor, name) is getattr(lm, name)
    assert own <= set(dir(Tensor))


@pytest.mark.parametrize("file", METHODS)
def test_files_name_the_methods_they_test(file: str) -> None:
    assert set(METHODS[file].split()) <= words(file)


def test_every_operator_is_tested() -> None:
    special = {"__getitem__", "__setitem__", "__array__", "__dlpack__", "__dlpack_device__",
               "__array_namespace__", "_stack"}  # test_indexing.py, test_interop.py, test_handle.py
    tested = set(test_elementwise_values.OPERATORS)
    reflected = {f"__r{name[2:]}" for name in tested}
    assert set(ATTACHED) - special - reflected == tested


def test_layers_optimisers_and_draws_are_named_in_their_tests() -> None:
    """`next_key` is what every draw without a seed takes its key from."""
    assert functions(random, random.__all__) - {"next_key"} <= words("functions/test_random.py")
    files = [f"nn/{path.name}" for path in (TESTS / "nn").glob("test_*.py")]
    named = frozenset.union(*map(words, files))
    assert set(optim.__all__) - {"Optimizer"} <= named
    assert set(schedules.__all__) <= named
    assert {name for name in nn.__all__ if isinstance(getattr(nn, name), type)} <= named
