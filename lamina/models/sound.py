"""Sound of files, and its features: how loud each band of frequencies is, frame by frame."""

from __future__ import annotations

import os
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lamina.errors import ArgumentError, FormatError
from lamina.models.fields import Fields, read_object

__all__ = ["Features", "Sound", "read_wave"]

Array = Any  # numpy.ndarray

_HIGHEST = 8000.0  # Hz, of the last band
_QUIETEST = 1e-10  # of a power, before its logarithm
_RANGE = 8.0  # powers of ten below the loudest; what is quieter is raised to that


class Sound(NamedTuple):
    """samples: float32 from -1 to 1, (count,). rate: of them in a second."""

    samples: Array
    rate: int


def read_wave(path: str | os.PathLike[str]) -> Sound:
    """The sound in a WAV file of integers of 8 to 32 bits; of several channels their mean. Raises
    FormatError for what is no such file, and OSError."""
    import numpy as np

    try:
        with wave.open(os.fspath(path), "rb") as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise FormatError(f"{os.fspath(path)}: no WAV file of integers: {error}") from None
    if width not in (1, 2, 3, 4) or not channels or rate <= 0:
        raise FormatError(f"{os.fspath(path)}: {channels} channels of {8 * width} bits, {rate} Hz")
    data = data[: len(data) - len(data) % (width * channels)]  # of a file that is cut off
    # To 32 bits each, little end first. Only 8 bits have no sign: 128 is silence.
    padded = np.zeros((len(data) // width, 4), np.uint8)
    padded[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape((-1, width))
    if width == 1:
        padded[:, 3] ^= 0x80
    samples = padded.view("<i4")[:, 0].astype(np.float64) / 2**31
    return Sound(samples.reshape((-1, channels)).mean(axis=1).astype(np.float32), rate)


@dataclass(frozen=True)
class Features:
    """How sound becomes features.

    bands: of frequencies, whose widths are as the ear hears (Slaney 1998, "Auditory Toolbox").
    rate: samples a second. hop: samples between two frames. window: samples that a frame is made
    of. length: samples of a part of the sound, which shorter ones are filled up to by silence."""

    bands: int
    rate: int
    hop: int
    window: int
    length: int

    @classmethod
    def of_folder(cls, folder: Path) -> Features:
        """As ``preprocessor_config.json`` says. Raises FormatError, which names the field, and
        OSError."""
        path = folder / "preprocessor_config.json"
        return _read(Fields(read_object(path), str(path)))

    def parts(self, sound: Sound) -> list[Array]:
        """Of each `length` samples: float32 (bands, length / hop). Raises ArgumentError for sound
        of another rate."""
        if sound.rate != self.rate:
            raise ArgumentError(
                f"sound of {sound.rate} samples a second; {self.rate} are needed",
                remedy=f"write it with that rate, as by ffmpeg -i SOUND -ar {self.rate} SOUND.wav",
            )
        starts = range(0, max(len(sound.samples), 1), self.length)
        return [self(sound.samples[start : start + self.length]) for start in starts]

    def __call__(self, samples: Array) -> Array:
        """Of `length` samples or fewer, float32 (count,): float32 (bands, length / hop)."""
        import numpy as np

        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.window) / self.window)
        powers = np.abs(np.fft.rfft(self._frames(samples) * hann)) ** 2
        loudness = np.log10(np.maximum(powers @ self.filters(), _QUIETEST))
        loudness = np.maximum(loudness, loudness.max() - _RANGE)
        return ((loudness.T + 4) / 4).astype(np.float32)  # as Whisper was trained with

    def _frames(self, samples: Array) -> Array:
        """The samples around each frame's place, which is in their middle: (length / hop, window).
        Frames at both ends see sound that is reflected there."""
        import numpy as np

        filled = np.zeros(self.length)
        filled[: len(samples)] = samples
        reflected = np.pad(filled, self.window // 2, mode="reflect")
        starts = np.arange(self.length // self.hop) * self.hop
        return reflected[starts[:, None] + np.arange(self.window)]

    def filters(self) -> Array:
        """The weight of each frequency in each band, (window / 2 + 1, bands): triangles between the
        middles of the bands beside it, of one area."""
        import numpy as np

        frequencies = np.linspace(0, self.rate // 2, self.window // 2 + 1)[:, None]
        pitches = np.linspace(0.0, _pitch(_HIGHEST), self.bands + 2)
        middles = np.array([_frequency(pitch) for pitch in pitches])
        below, middle, above = middles[:-2], middles[1:-1], middles[2:]
        rising = (frequencies - below) / (middle - below)
        falling = (above - frequencies) / (above - middle)
        return np.maximum(0.0, np.minimum(rising, falling)) * 2 / (above - below)


# Pitches in mel: proportional to frequencies up to 1000 Hz, which is 15 mel, and to logarithms of
# frequencies above: 6.4 times the frequency is 27 mel more.
_KNEE_HZ, _KNEE = 1000.0, 15.0
_RATIO, _STEPS = 6.4, 27.0


def _pitch(frequency: float) -> float:
    import numpy as np

    if frequency < _KNEE_HZ:
        return frequency * _KNEE / _KNEE_HZ
    return _KNEE + _STEPS * float(np.log(frequency / _KNEE_HZ) / np.log(_RATIO))


def _frequency(pitch: float) -> float:
    if pitch < _KNEE:
        return pitch * _KNEE_HZ / _KNEE
    return float(_KNEE_HZ * _RATIO ** ((pitch - _KNEE) / _STEPS))


def _read(fields: Fields) -> Features:
    rate = fields.size("sampling_rate", 16000, largest=1 << 20)
    if rate < 2 * _HIGHEST:
        raise fields.fail("sampling_rate", f"{rate}; {2 * int(_HIGHEST)} or more is needed")
    if fields.get("dither", 0.0) != 0.0:
        raise fields.fail("dither", f"{fields.get('dither')!r}; noise is not supported")
    window = fields.size("n_fft", 400, largest=1 << 14)
    seconds = fields.size("chunk_length", 30, largest=1 << 9)
    hop = fields.size("hop_length", 160, largest=window)
    if window % 2 or rate * seconds % hop:
        reason = f"{window} samples a frame, {hop} between frames, {rate * seconds} in all"
        raise fields.fail("n_fft", f"{reason}; an even number, and one that divides are needed")
    bands = fields.size("feature_size", 80, largest=1 << 12)
    return Features(bands, rate, hop, window, length=rate * seconds)
