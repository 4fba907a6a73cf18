"""Whisper against transformers: features of sound, logits, and the tokens that are written."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamina import Tensor, models
from lamina.errors import ArgumentError, FormatError, ShapeError
from lamina.models.configuration import from_hugging_face
from lamina.models.sound import Features, Sound, read_wave
from lamina.models.transcribe import Prompt, Transcriber

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 80, "num_mel_bins": 20, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40, "max_source_positions": 50, "max_target_positions": 24,
    "pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 2,
    "begin_suppress_tokens": None,
}  # fmt: skip
# A second of sound, in place of 30.
EXTRACTOR = {"feature_size": 20, "chunk_length": 1}
SPECIAL = {
    "lang_to_id": {"<|en|>": 3, "<|de|>": 4, "<|fr|>": 5},
    "task_to_id": {"transcribe": 6, "translate": 7},
    "no_timestamps_token_id": 79, "is_multilingual": True, "return_timestamps": False,
    "suppress_tokens": [9, 74], "begin_suppress_tokens": [22, 1],  # the best ones otherwise
}  # fmt: skip
GENERATOR = np.random.default_rng(0)
TIMES = np.arange(16000) / 16000
SAMPLES = (
    0.4 * np.sin(2 * np.pi * (300 + 900 * TIMES) * TIMES) + 0.05 * GENERATOR.normal(size=16000)
).astype(np.float32)


def saved(folder: Path, scale: float = 0.15, **changes: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.WhisperConfig(**SIZES | changes)
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * (0.4 if weight.ndim == 1 else scale))
        decoder = model.model.decoder  # one token would be the best always, but for these:
        decoder.layer_norm.bias *= 0.1
        decoder.embed_tokens.weight *= 0.3
        decoder.embed_positions.weight *= 2
    model.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(**EXTRACTOR).save_pretrained(folder)
    return model


def features_of(samples: np.ndarray, **changes: Any) -> np.ndarray:
    extractor = transformers.WhisperFeatureExtractor(**EXTRACTOR | changes)
    features = extractor(samples, sampling_rate=16000, return_tensors="np")["input_features"]
    return np.asarray(features)


@pytest.mark.parametrize("bands", [20, 80, 128])
def test_features_are_those_of_transformers(bands: int, tmp_path: Path) -> None:
    transformers.WhisperFeatureExtractor(feature_size=bands, chunk_length=1).save_pretrained(
        tmp_path
    )
    features = Features.of_folder(tmp_path)
    for samples in (SAMPLES, SAMPLES[:5003], np.zeros(100, np.float32), SAMPLES[:0]):
        if not samples.size:  # theirs refuses none
            assert features(samples).shape == (bands, 100)
            continue
        wanted = features_of(samples, feature_size=bands)[0]
        found = features(samples)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, atol=1e-4)


HOSTILE = {
    "decoder_layers": 1, "encoder_attention_heads": 1, "activation_function": "relu",
    "max_source_positions": 50, "d_model": 24,
}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, HOSTILE])
def test_logits_are_those_of_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    theirs = saved(tmp_path, **changes)
    ids = GENERATOR.integers(0, 80, (2, 9))
    features = np.concatenate([features_of(SAMPLES), features_of(SAMPLES[:7000])])
    with torch.no_grad():
        wanted = theirs(torch.tensor(features), decoder_input_ids=torch.tensor(ids)).logits.numpy()
    network = models.load(tmp_path, device="interp").network
    inputs, tokens = Tensor(features, device="interp"), Tensor(ids, device="interp")
    np.testing.assert_allclose(network(inputs, tokens).numpy(), wanted, atol=1e-4)
    memories = network.memories(network.encoded(inputs))
    caches = network.new_caches(2, 16, "interp")
    for start, stop in ((0, 3), (3, 4), (4, 9)):
        first = Tensor(start, device="interp")
        logits = network.decoded(tokens[:, start:stop], memories, None, caches, first).numpy()
        np.testing.assert_allclose(logits, wanted[:, start:stop], atol=1e-4)


def write_generation(folder: Path, **values: Any) -> None:
    names = ("decoder_start_token_id", "eos_token_id", "pad_token_id", "bos_token_id")
    plain = {name: SIZES[name] for name in names}
    (folder / "generation_config.json").write_text(json.dumps(plain | values))


def test_the_tokens_of_sounds_are_those_of_transformers(tmp_path: Path) -> None:
    """The language is detected; some tokens are never written, and some not at first."""
    saved(tmp_path, scale=0.5)
    forced = [[1, None], [2, 6]]
    write_generation(tmp_path, **SPECIAL, forced_decoder_ids=forced)
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        features = torch.tensor(features_of(SAMPLES))
        wanted = theirs.generate(features, do_sample=False, num_beams=1)[0].tolist()
    (found,) = Transcriber(tmp_path, "cpu").tokens(Sound(SAMPLES, 16000))
    assert len(wanted) == 24 - 4  # none ended the text, and four are before it
    assert found[:20] == wanted
    assert len(found) == 21  # the last one needs no place
    assert len(set(found)) > 2
    assert found[0] != 22
    assert not set(found) & {9, 74}


def wav(path: Path, data: bytes, width: int, channels: int = 1, rate: int = 16000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)
    return path


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_wave_files_of_all_widths(width: int, tmp_path: Path) -> None:
    values = np.array([0.0, 0.5, -0.5, -1.0, 0.25])
    integers = (values * 2 ** (8 * width - 1)).astype(np.int64) + (128 if width == 1 else 0)
    data = b"".join(int(one).to_bytes(width, "little", signed=width > 1) for one in integers)
    sound = read_wave(wav(tmp_path / "a.wav", data, width))
    assert sound.rate == 16000
    np.testing.assert_array_equal(sound.samples, values.astype(np.float32))


def test_channels_are_mixed_and_other_files_refused(tmp_path: Path) -> None:
    data = np.array([100, 300, -200, 0], "<i2").tobytes()
    sound = read_wave(wav(tmp_path / "a.wav", data, 2, channels=2, rate=8000))
    np.testing.assert_allclose(sound.samples, np.array([200, -100]) / 2**15)
    for content in (b"", b"RIFF", b"no sound at all" * 9):
        (tmp_path / "b.wav").write_bytes(content)
        with pytest.raises(FormatError, match="no WAV file of integers"):
            read_wave(tmp_path / "b.wav")
    whole = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "c.wav").write_bytes(whole[:-3])
    assert len(read_wave(tmp_path / "c.wav").samples) == 1


def test_sounds_of_other_rates_are_refused_and_long_ones_in_parts(tmp_path: Path) -> None:
    transformers.WhisperFeatureExtractor(**EXTRACTOR).save_pretrained(tmp_path)
    features = Features.of_folder(tmp_path)
    with pytest.raises(ArgumentError, match="sound of 8000 samples a second; 16000 are needed"):
        features.parts(Sound(SAMPLES, 8000))
    parts = features.parts(Sound(np.concatenate([SAMPLES, SAMPLES[:100]]), 16000))
    assert len(parts) == 2
    np.testing.assert_array_equal(parts[0], features(SAMPLES))
    np.testing.assert_array_equal(parts[1], features(SAMPLES[:100]))
    assert len(features.parts(Sound(SAMPLES[:0], 16000))) == 1


def test_the_command_prints_what_is_said(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    saved(tmp_path, scale=0.5)
    write_generation(tmp_path, **SPECIAL)
    words = {f"w{number}": number for number in range(80)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    backend.save(str(tmp_path / "tokenizer.json"))
    sound = wav(tmp_path / "a.wav", (SAMPLES * 2**15).astype("<i2").tobytes(), 2)
    (tokens,) = Transcriber(tmp_path, "cpu").tokens(read_wave(sound))
    done = subprocess.run(
        [sys.executable, "-m", "lamina", "transcribe", tmp_path, sound],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"w{token}" for token in tokens]


CONFIG = from_hugging_face({**SIZES, "model_type": "whisper"}, "config.json")
PROMPTS: dict[str, tuple[dict[str, Any], Prompt]] = {
    "one language": (
        {"forced_decoder_ids": [[1, 8]], "no_timestamps_token_id": 8, "eos_token_id": [1, 13]},
        Prompt(2, (), (8,), (1, 13)),
    ),
    "detected": (SPECIAL, Prompt(2, (3, 4, 5), (6, 79), (1,), (9, 74), (22, 1))),
    "given": (
        {**SPECIAL, "forced_decoder_ids": [[1, 4], [2, 7]], "suppress_tokens": None},
        Prompt(2, (), (4, 7, 79), (1,), (), (22, 1)),
    ),
    "nothing": ({}, Prompt(2, (), (), (1,))),
}  # fmt: skip


@pytest.mark.parametrize("name", PROMPTS)
def test_what_texts_begin_with(name: str, tmp_path: Path) -> None:
    values, wanted = PROMPTS[name]
    write_generation(tmp_path, **values)
    assert Prompt.of_folder(tmp_path, CONFIG) == wanted


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "heads": ("config", {"decoder_attention_heads": 5}, "decoder_attention_heads: 5 heads do not"),
    "scaled": ("config", {"scale_embedding": True}, "scale_embedding: True; models of this family"),
    "start": ("config", {"decoder_start_token_id": 80}, "start_token_id: 80; a number from 0 to"),
    "places": ("generation_config", {"forced_decoder_ids": [[2, 3]]}, r"\[2, 3\]; pairs of the pl"),
    "tokens": ("generation_config", {"suppress_tokens": [-1]}, "suppress_tokens: -1; a number fro"),
    "language": ("generation_config", {"lang_to_id": {"en": 90}}, "lang_to_id: en: 90; a number"),
    "rate": ("preprocessor_config", {"sampling_rate": 8000}, "sampling_rate: 8000; 16000 or more"),
    "noise": ("preprocessor_config", {"dither": 0.1}, "dither: 0.1; noise is not supported"),
    "frames": ("preprocessor_config", {"hop_length": 7}, "n_fft: 400 samples a frame, 7 between"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_make_no_sense_are_refused(name: str, tmp_path: Path) -> None:
    kind, values, message = WRONG[name]
    (tmp_path / f"{kind}.json").write_text(json.dumps(values))
    plain = {**SIZES, "model_type": "whisper"}
    reads = {
        "config": lambda: from_hugging_face({**plain, **values}, "config.json"),
        "generation_config": lambda: Prompt.of_folder(tmp_path, CONFIG),
        "preprocessor_config": lambda: Features.of_folder(tmp_path),
    }
    with pytest.raises(FormatError, match=message):
        reads[kind]()


def test_wrong_features_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    network = models.load(tmp_path).network
    with pytest.raises(ShapeError, match=r"features of shape \(1, 20, 99\); \(batch, 20, 100\)"):
        network.encoded(Tensor(np.zeros((1, 20, 99), np.float32)))
