"""Images of files as models want them, against Pillow and transformers; and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamina.errors import ArgumentError, FormatError, MissingPackageError
from lamina.models import images
from lamina.models.images import Labels, Preprocessing, read_image
from lamina.models.resampling import FILTERS, resized

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.models.test_images import saved  # noqa: E402  of PyTorch's models

GENERATOR = np.random.default_rng(1)
PHOTO = GENERATOR.integers(0, 256, (47, 61, 3)).astype(np.uint8)


@pytest.mark.parametrize("number", FILTERS)
@pytest.mark.parametrize("sizes", [(20, 30), (47, 90), (100, 61), (1, 1), (47, 61), (200, 7)])
def test_images_are_resized_as_pillow_does(number: int, sizes: tuple[int, int]) -> None:
    """To the byte, but where a sum is near the middle of two."""
    wanted = np.asarray(Image.fromarray(PHOTO).resize(sizes[::-1], number)).astype(int)
    found = resized(PHOTO, *sizes, FILTERS[number]).astype(int)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1
    assert (found != wanted).mean() < 0.01


PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViT", {"size": {"height": 24, "width": 20}}),
    "vit without steps": ("ViT", {"do_resize": False, "do_rescale": False, "do_normalize": False}),
    "convnext": ("ConvNext", {"size": {"shortest_edge": 32}, "crop_pct": 0.9}),
    "convnext of large images": ("ConvNext", {"size": {"shortest_edge": 384}}),
    "clip": ("CLIP", {"size": {"shortest_edge": 30}, "crop_size": {"height": 21, "width": 25}}),
}  # fmt: skip


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    kind, changes = PROCESSORS[name]
    processor = getattr(transformers, f"{kind}ImageProcessorPil")(**changes)
    processor.save_pretrained(tmp_path)
    for photo in (PHOTO, PHOTO.transpose(1, 0, 2).copy()):
        wanted = processor(Image.fromarray(photo), return_tensors="np")["pixel_values"][0]
        found = Preprocessing.of_folder(tmp_path, 3)(photo)
        assert found.shape == wanted.shape
        assert found.dtype == np.float32
        # A byte is 1 / 255 / 0.225, and some are rounded the other way.
        step = 0.018 if changes.get("do_rescale", True) else 1
        assert np.abs(found - wanted).max() < step
        assert (np.abs(found - wanted) > 1e-4).mean() < 0.01


def written(folder: Path, **values: Any) -> Path:
    plain = {"image_mean": [0.5] * 3, "image_std": [0.2, 0.3, 0.4]}
    (folder / "preprocessor_config.json").write_text(json.dumps(plain | values))
    return folder


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ({"size": 24}, (3, 24, 24)),
        ({"size": 24, "crop_pct": 0.5}, (3, 24, 24)),
        ({"size": 24, "do_center_crop": True, "crop_size": 20}, (3, 20, 20)),
        ({"size": {"shortest_edge": 24}}, (3, 24, 31)),
        ({"do_resize": False, "do_center_crop": True, "crop_size": 20}, (3, 20, 20)),
    ],
)  # fmt: skip
def test_sizes_of_older_files(values: dict[str, Any], shape: Any, tmp_path: Path) -> None:
    assert Preprocessing.of_folder(written(tmp_path, **values), 3)(PHOTO).shape == shape


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "filter": ({"resample": 9}, "resample: 9; known filters are those of the numbers 1, 2, 3"),
    "filters": ({"resample": [2]}, r"resample: \[2\]; known"),
    "means": ({"image_mean": [0.5]}, r"image_mean: \[0.5\]; 3 numbers are needed"),
    "deviations": ({"image_std": [1, 0, 1]}, r"image_std: \[1, 0, 1\]; positive numbers"),
    "size": ({"size": {"height": 3}}, "size: width: missing"),
    "huge": ({"size": {"height": 9, "width": 1 << 20}}, "width: 1048576; an integer from 1 to"),
    "share": ({"size": 20, "crop_pct": -1}, "crop_pct: -1; a positive number"),
    "crop": ({"do_center_crop": True}, "crop_size: missing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_make_no_sense_are_refused(name: str, tmp_path: Path) -> None:
    values, message = WRONG[name]
    with pytest.raises(FormatError, match=message):
        Preprocessing.of_folder(written(tmp_path, **values), 3)


def test_small_images_are_refused_where_a_part_is_kept(tmp_path: Path) -> None:
    values = {"do_resize": False, "do_center_crop": True, "crop_size": 50}
    preprocessing = Preprocessing.of_folder(written(tmp_path, **values), 3)
    with pytest.raises(ArgumentError, match="an image of 47 x 61 pixels; 50 x 50 of it"):
        preprocessing(PHOTO)


def test_the_command_prints_what_transformers_says(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    theirs = saved("vit", tmp_path)
    processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})
    processor.save_pretrained(tmp_path)
    path = tmp_path / "photo.png"
    Image.fromarray(PHOTO).save(path)
    with torch.no_grad():
        pixels = torch.tensor(processor(Image.open(path), return_tensors="np")["pixel_values"])
        shares = theirs(pixels).logits.softmax(-1)[0].numpy()
    order = (-shares).argsort()[:2]
    done = subprocess.run(
        [sys.executable, "-m", "lamina", "classify", tmp_path, path, "--count", "2"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [name for _, name in lines] == [("cat", "dog", "bird")[number] for number in order]
    for (share, _), number in zip(lines, order, strict=True):
        assert float(share.removesuffix("%")) == pytest.approx(100 * shares[number], abs=0.3)


def test_models_of_texts_name_nothing_on_images(tmp_path: Path) -> None:
    from tests.models.families import saved as text_model

    text_model("llama", tmp_path)
    with pytest.raises(ArgumentError, match="Llama names nothing on images"):
        Labels(tmp_path)


def test_grey_images_and_the_way_cameras_are_held(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # the tag of the orientation: a quarter of a turn
    Image.fromarray(PHOTO).save(tmp_path / "photo.png", exif=turned)
    np.testing.assert_array_equal(
        read_image(tmp_path / "photo.png"), np.rot90(PHOTO, -1)
    )
    assert read_image(tmp_path / "photo.png", channels=1).shape == (61, 47, 1)
    with pytest.raises(ArgumentError, match="4 channels; images of files have 1 or 3"):
        read_image(tmp_path / "photo.png", channels=4)


def test_without_pillow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'lamina\[images\]'"):
        images.read_image("photo.png")
