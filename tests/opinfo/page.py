"""What a full run leaves behind: the list of whole operations, and the tables of docs/opinfo.md."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

from tests.opinfo.harness import Outcome

WHOLE = Path(__file__).with_name("whole.txt")
PAGE = Path(__file__).parents[2] / "docs" / "opinfo.md"
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"

# Why no sample of an operation passes, by patterns of names.
REASONS = {
    "Matrix decompositions, inverses, and functions that need them": """
        cholesky* geqrf linalg.* logdet lu lu_* matrix_exp ormqr pca_lowrank pinverse qr svd
        svd_lowrank triangular_solve""",
    "Fourier transforms": "fft.* stft",
    "Bessel functions beside J0, J1, I0 and I1, and Airy's": """
        special.airy_ai special.bessel_y? special.modified_bessel_k?
        special.scaled_modified_bessel_k?""",
    "Orthogonal polynomials": """
        special.*chebyshev_polynomial_? special.hermite_polynomial_*
        special.laguerre_polynomial_l special.legendre_polynomial_p""",
    "Incomplete gamma functions": "igamma igammac",
    "Windows of signals": "signal.windows.*",
    "Strides, and sizes changed in place": """
        as_strided* empty_strided new_empty_strided resize_ resize_as_""",
    "Inner parts of PyTorch, beside which lamina has the whole function": """
        _batch_norm_with_update _native_batch_norm_legit _softmax_backward_data
        max_pool2d_with_indices_backward native_batch_norm native_group_norm native_layer_norm
        _chunk_cat _segment_reduce _unsafe_masked_index* _upsample_bilinear2d_aa
        nn.functional.multi_head_attention_forward""",
    "Finite differences; lamina's `gradient` is of a graph": "gradient",
    "Others": "chalf histogramdd nn.functional.fractional_max_pool?d",
}

# Which samples of the other operations are refused.
PARTLY = {
    "gather": "an index of size 0 and of more axes than the array",
    "linalg.matrix_norm": "spectral and nuclear norms, which need singular values",
    "linalg.norm": "spectral and nuclear norms, which need singular values",
    "nn.functional.batch_norm": "arrays of one axis and no elements",
    "norm": "nuclear norms, which need singular values",
    "tensordot": "summed axes of size 1 beside axes of another size",
}


def whole_names() -> list[str]:
    """The operations that passed whole in the last full run."""
    return WHOLE.read_text(encoding="utf-8").split()


def write_whole(outcomes: Sequence[Outcome]) -> None:
    names = [outcome.name for outcome in outcomes if outcome.whole]
    WHOLE.write_text("\n".join(names) + "\n", encoding="utf-8")


def write_page(outcomes: Sequence[Outcome]) -> None:
    """Print the tables between the two marks of docs/opinfo.md anew."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}{results_markdown(outcomes)}{END}{after}", encoding="utf-8")


def results_markdown(outcomes: Sequence[Outcome]) -> str:
    """The counts, and the operations that do not pass whole by reason, as Markdown."""
    whole = [outcome for outcome in outcomes if outcome.whole]
    partly = [outcome for outcome in outcomes if outcome.passed and not outcome.whole]
    missing = [outcome.name for outcome in outcomes if not outcome.passed]
    wrong = [outcome.name for outcome in outcomes if outcome.wrong]
    samples = sum(outcome.passed for outcome in outcomes)
    parts = [
        f"With PyTorch {version('torch').split('+')[0]} and every sample, on the device `interp`:",
        "",
        "| operations | pass whole | pass in part | pass no sample | have a wrong sample |",
        "|---|---|---|---|---|",
    ]
    counts = [len(outcomes), len(whole), len(partly), len(missing), len(wrong)]
    parts += [f"| {' | '.join(map(str, counts))} |", "", f"{samples:,} samples pass.", ""]
    parts += ["| in part | pass | refused | what is refused |", "|---|---|---|---|"]
    for outcome in partly:
        reason = PARTLY[outcome.name]
        parts.append(f"| `{outcome.name}` | {outcome.passed} | {outcome.refused} | {reason} |")
    parts += ["", "| missing | operations |", "|---|---|"]
    for reason, names in by_reason(missing).items():
        listed = ", ".join(f"`{name}`" for name in names)
        parts.append(f"| {reason} ({len(names)}) | {listed} |")
    return "\n".join(parts) + "\n"


def by_reason(names: Sequence[str]) -> dict[str, list[str]]:
    """Names grouped by the first reason with a pattern for them; raises KeyError for others."""
    groups: dict[str, list[str]] = {reason: [] for reason in REASONS}
    for name in names:
        groups[_reason(name)].append(name)
    return {reason: listed for reason, listed in groups.items() if listed}


def _reason(name: str) -> str:
    for reason, patterns in REASONS.items():
        if any(fnmatch(name, pattern) for pattern in patterns.split()):
            return reason
    raise KeyError(f"{name} passes no sample, and REASONS has no pattern for its name")
