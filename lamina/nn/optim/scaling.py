"""Loss scaling: gradients in float16 without the loss of small ones."""

from typing import Any

from lamina.core import dtypes
from lamina.errors import ArgumentError
from lamina.frontend.functions.elementwise import isfinite, logical_not, where
from lamina.frontend.functions.movement import stack
from lamina.frontend.functions.reduction import all
from lamina.frontend.tensor import Tensor
from lamina.nn.optim.base import Optimizer
from lamina.nn.state import filled

__all__ = ["GradScaler"]


class GradScaler:
    """Multiplies losses by a number, so that gradients in float16 do not become 0, and chooses this
    number: smaller after gradients with infinities or NaN, whose step is left out, and greater
    after `growth_interval` steps without (Micikevicius et al. 2018, "Mixed precision training",
    section 3.2).

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    Nothing of this waits for a value: what is found in the gradients decides on the device, in the
    program of the step, which `lamina.jit` may trace. `nn.state_dict(scaler.state)` saves the
    state."""

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True, device: str | None = None,
    ) -> None:  # fmt: skip
        if not (growth_factor > 1.0 and 0.0 < backoff_factor < 1.0 and init_scale > 0.0):
            raise ArgumentError(
                f"init_scale is {init_scale}, growth_factor {growth_factor} and "
                f"backoff_factor {backoff_factor}: above 0, above 1, and between 0 and 1",
                operation="GradScaler",
            )
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        self.enabled = enabled
        self.state = {
            "scale": filled((), init_scale, dtypes.float32, device),
            "growth_tracker": filled((), 0, dtypes.int64, device),
            "found_inf": filled((), False, dtypes.bool_, device),  # since the last update
        }
        # Since the last update, by the id of an optimiser:
        self._unscaled: dict[int, Tensor] = {}  # whether its gradients are finite
        self._stepped: set[int] = set()

    def scale(self, outputs: Any) -> Any:
        """Losses, a tensor or a list or tuple of them, times the scale; halves become float32."""
        if not self.enabled:
            return outputs
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(output) for output in outputs)
        return outputs * self.state["scale"].to(outputs.device)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the optimiser's parameters by the scale, for whatever needs their
        true size before the step, such as `clip_grad_norm`. They become float32."""
        if not self.enabled:
            return
        if id(optimizer) in self._unscaled or id(optimizer) in self._stepped:
            raise ArgumentError("these gradients are unscaled already; call update() "
                                "once after each step", operation="unscale_")  # fmt: skip
        finite = []
        for parameter in optimizer.parameters:
            if parameter.grad is None:
                continue
            gradient = parameter.grad.cast(dtypes.accumulator(parameter.grad.dtype))
            finite.append(all(isfinite(gradient)).to(self.state["scale"].device))
            parameter.grad = gradient / self.state["scale"].to(parameter.device)
        if finite:
            good = self.agreed(all(stack(finite)))
            overflowed = self.state["found_inf"]
            overflowed.assign(overflowed | logical_not(good))
            self._unscaled[id(optimizer)] = good

    def agreed(self, finite: Tensor) -> Tensor:
        """Whether a step is made, where `finite`, of shape (), says that it could be."""
        return finite

    def step(self, optimizer: Optimizer) -> None:
        """`optimizer.step()` with the gradients divided by the scale; it changes nothing where one
        of them is infinite or NaN. Raises ArgumentError for a second step before `update`, which
        would not know by which scale to divide."""
        if not self.enabled:
            optimizer.step()
            return
        if id(optimizer) in self._stepped:
            raise ArgumentError("this optimiser has stepped already; call update() once "
                                "after each step", operation="step")  # fmt: skip
        if id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        optimizer.step(when=self._unscaled.get(id(optimizer)))
        self._stepped.add(id(optimizer))

    def update(self) -> None:
        """Choose the next scale. It is computed with the next step, or when it is asked for."""
        if not self.enabled:
            return
        scale, tracker, overflowed = self.state.values()
        grows = tracker + 1 == self.growth_interval
        good = where(grows, scale * self.growth_factor, scale)
        # As PyTorch: a scale beyond float32 does not become infinite.
        good = where(isfinite(good), good, scale)
        bad = Tensor.of(overflowed.node, overflowed.device)
        scale.assign(where(bad, scale * self.backoff_factor, good))
        tracker.assign(where(bad | grows, 0, tracker + 1))
        overflowed.assign(False)
        self._unscaled.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        """The present scale, which is waited for."""
        return float(self.state["scale"].item()) if self.enabled else 1.0
