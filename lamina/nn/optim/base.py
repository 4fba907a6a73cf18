"""What all optimisers share: parameters and their groups, state, rates, and the step itself."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from typing import Any, NamedTuple

from lamina.core import dtypes
from lamina.core.dtypes import accumulator
from lamina.errors import ArgumentError, GradientError, JitError, ShapeError
from lamina.frontend.functions.elementwise import exp, log, minimum, where
from lamina.frontend.realize import called, over, realize, stored
from lamina.frontend.session import SESSION, tracers
from lamina.frontend.tensor import Tensor, as_tensor, leaf
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.nn.schedules import Schedule
from lamina.nn.state import filled

__all__ = ["Optimizer"]

_GROUP_SETTINGS = ("params", "lr", "weight_decay")


class Slot(NamedTuple):
    """A tensor of the state that every parameter has: the value that it begins with, and whether
    it is one number instead of one for each element."""

    initial: float = 0.0
    scalar: bool = False


@dataclass(eq=False, repr=False)
class Optimizer:
    """What all optimisers share. `state` holds their tensors by name, one for each parameter.

    parameters: tensors, or groups of them, dicts with the keys ``params`` and, if they differ from
    those of the optimiser, ``lr`` and ``weight_decay``. lr: a number, or a function of the number
    of steps taken (see `nn.schedules`); it may be set between steps, for the groups without a rate
    of their own (`change_rates` changes all of them). maximize: go along the
    gradients, and not against them. `foreach` and `fused`, which PyTorch has, are accepted and
    change nothing: a step is one program. `nn.state_dict(optimizer.state)` and
    `nn.load_state_dict` save and restore the state; set `count`, the steps that such a function is
    told, as well. Raises ArgumentError for settings out of range, GradientError for parameters
    that were not made with ``requires_grad=True``."""

    parameters: Sequence[Tensor]
    lr: float | Schedule = 1e-3
    maximize: bool = field(default=False, kw_only=True)
    foreach: InitVar[bool | None] = field(default=None, kw_only=True)
    fused: InitVar[bool | None] = field(default=None, kw_only=True)

    weight_decay = 0.0  # a field of those that have one

    def __post_init__(self, foreach: bool | None, fused: bool | None) -> None:
        what = type(self).__name__
        self._read_groups()
        if not self.parameters:
            raise GradientError(f"{what}: no parameters; nn.parameters(model) lists them")
        for one in self.parameters:
            if not isinstance(one, Tensor) or not one.requires_grad:
                raise GradientError(f"{what}: {one!r} was not made with requires_grad=True")
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.type in (float, int) and not value >= 0.0:
                raise ArgumentError(f"{what}: {setting.name} is {value}; it cannot be negative")
        realize()  # now parameters have the memory that steps write to
        self.count = 0  # steps taken
        self.state = {name: self._filled(slot) for name, slot in self._slots().items()}
        devices = dict.fromkeys(one.device for one in self.parameters)
        count = len(self.parameters)
        self._counters = {one: filled(count, 0.0, dtypes.float32, one) for one in devices}
        self.state["step"] = [*self._counters.values()]  # that each parameter took, from 1
        places = dict.fromkeys(
            (one.device, group) for one, group in zip(self.parameters, self._group_of, strict=True)
        )
        self._rates = {place: filled((), 0.0, dtypes.float32, place[0]) for place in places}
        self._set_rates(self.lr)

    def _read_groups(self) -> None:
        """Note for each parameter the number of its group, its rate and its weight decay."""
        given: Any = self.parameters
        entries = list(given) if isinstance(given, Iterable) else []
        self.parameters: list[Tensor] = []
        self._group_of: list[int] = []
        self._group_lr: list[float | Schedule | None] = []  # of each group
        self._decays: list[float] = []  # of each parameter
        grouped = bool(entries) and all(isinstance(one, Mapping) for one in entries)
        groups: list[Any] = entries if grouped else [{"params": entries}]
        for group in groups:
            unknown = [key for key in group if key not in _GROUP_SETTINGS]
            if unknown or "params" not in group:
                raise ArgumentError(f"{type(self).__name__}: a group has {', '.join(group)}; it "
                                    "needs params, and may have lr and weight_decay; take one "
                                    "optimiser for each group otherwise")  # fmt: skip
            own = group["params"]
            members = [own] if isinstance(own, Tensor) else list(own)
            decay = group.get("weight_decay", self.weight_decay)
            if not decay >= 0.0:
                raise ArgumentError(f"{type(self).__name__}: weight_decay is {decay}; it cannot "
                                    "be negative")  # fmt: skip
            self.parameters += members
            self._group_of += [len(self._group_lr)] * len(members)
            self._decays += [decay] * len(members)
            self._group_lr.append(group.get("lr"))

    def _filled(self, slot: Slot) -> list[Tensor]:
        made = []
        for one in self.parameters:
            shape = () if slot.scalar else one.shape
            made.append(filled(shape, slot.initial, accumulator(one.dtype), one.device))
        return made

    def _slots(self) -> Mapping[str, Slot]:
        """The state that every parameter has, by name."""
        raise NotImplementedError

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        """What parameter number `index` is to go against; assigns its state."""
        raise NotImplementedError

    @property
    def decay_is_apart(self) -> bool:
        """Whether weight decay shrinks the parameter, and is not added to the gradient."""
        return False

    def _update(self, index: int, parameter: Tensor, gradient: Tensor, rate: Tensor) -> Tensor:
        """The new value of parameter number `index`."""
        decay = self._decays[index]
        if self.decay_is_apart:
            parameter = parameter * (1.0 - rate * decay)
        elif decay:
            gradient = gradient + parameter * decay
        return parameter - self._direction(index, gradient) * rate

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for one in self.parameters:
            one.grad = None

    def step(
        self, gradients: Sequence[Tensor | None] | None = None, when: Tensor | None = None
    ) -> None:
        """Move every parameter against its gradient, all in one program.

        gradients: one for each of `parameters`, in this order; `grad` of each by default. A
        parameter whose gradient is None stays where it is. when: a bool of shape (); where it is
        false, which nobody on the host needs to know, parameters and state stay as they are."""
        own, what = self.parameters, type(self).__name__
        if not isinstance(gradients, Iterable):
            gradients = [one.grad for one in own] if gradients is None else [gradients]
        given = [one if one is None else as_tensor(one) for one in gradients]
        if len(given) != len(own):
            raise GradientError(f"{what}: {len(given)} gradients for {len(own)} parameters")
        if all(one is None for one in given):
            raise GradientError(f"{what}: no parameter has a gradient; call loss.backward() first")
        for one, gradient in zip(own, given, strict=True):
            if gradient is not None and gradient.shape != one.shape:
                raise ShapeError(f"{what}: gradient {gradient.shape} of parameter {one.shape}")
        if any(map(callable, (self.lr, *self._group_lr))):
            if tracers.get():
                raise JitError("step: a schedule runs in Python, not in jit; set lr between calls")
            self._set_rates(self.lr)
        self._advance(
            [None if one is None else leaf(one.node, one.device) for one in given],
            None if when is None else leaf(when.node, when.device),
        )
        # The run would store whatever is still held.
        given, gradients, gradient, when = [], None, None, None
        # Whatever layers assigned on the way, such as running statistics, belongs to this step.
        realize(*SESSION.assigned())
        self.count += 1

    def _advance(self, given: Sequence[Tensor | None], when: Tensor | None) -> None:
        """Assign the new parameters and state, which this step does not compute yet."""
        changing = [*self.parameters, *(one for slot in self.state.values() for one in slot)]
        known = [one for one in given if one is not None]
        operands = [*changing, *self._rates.values(), *known]
        if when is not None:
            operands.append(when)
        nodes = [one.node for one in operands]
        leaves = {one for one in nodes if one.op is Op.BUFFER and stored(one) in (None, one)}
        all_leaves = len(leaves) == len(nodes) and len(known) == len(given)
        of_this_package = type(self).__module__.rpartition(".")[0] == __package__
        # Settings and types tell what the classes of this package assign to leaves; classes from
        # elsewhere may look at anything.
        if all_leaves and of_this_package:
            self._advance_once_built(changing, nodes, given, when)
        else:
            self._assign_all(changing, given, when)

    def _advance_once_built(
        self, changing: Sequence[Tensor], nodes: list[Node],
        given: Sequence[Tensor | None], when: Tensor | None,
    ) -> None:  # fmt: skip
        """`_assign_all`, whose graph is built at the first step and called with the leaves `nodes`
        at later ones."""

        def build() -> list[Node]:
            self._assign_all(changing, given, when)
            return over([one.node for one in changing], nodes)

        names = [one.name for one in fields(self) if one.name not in ("parameters", "lr")]
        values = [getattr(self, name) for name in names]
        settings = repr((values, self._decays, self._group_of))
        key = type(self), settings, when is None, *(one.arg[1:] for one in nodes)
        for one, node in zip(changing, called(key, nodes, build), strict=True):
            one.assign(Tensor.of(node or one.node, one.device))

    def _assign_all(
        self, changing: Sequence[Tensor], given: Sequence[Tensor | None], when: Tensor | None
    ) -> None:
        """Assign all of `changing`, which stay as they are where `when` is false."""
        before = [one.node for one in changing]
        self._assign_moved(given)
        if when is None:
            return
        for one, old in zip(changing, before, strict=True):
            moved = Tensor.of(one.node, one.device)
            kept = Tensor.of(old, one.device)
            one.assign(where(when.to(one.device), moved, kept))

    def _assign_moved(self, given: Sequence[Tensor | None]) -> None:
        steps = [float(one is not None) for one in given]
        for counter in self._counters.values():
            counter.assign(counter + (1.0 if all(steps) else Tensor(steps).to(counter.device)))
        for index, (one, gradient) in enumerate(zip(self.parameters, given, strict=True)):
            if gradient is None:
                continue
            kind, rate = accumulator(one.dtype), self._rates[one.device, self._group_of[index]]
            value, slope, factor = (x.detach().cast(kind) for x in (one, gradient, rate))
            one.assign(self._update(index, value, -slope if self.maximize else slope, factor))

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "lr" and hasattr(self, "_rates"):
            self._set_rates(value)  # which may refuse it
        super().__setattr__(name, value)

    def _set_rates(self, lr: float | Schedule) -> None:
        """Set the rate of each group: its own, or `lr`."""
        for (device, group), held in self._rates.items():
            own = self._group_lr[group]
            chosen = lr if own is None else own
            value = chosen(self.count) if callable(chosen) else chosen
            if not value >= 0.0:
                raise ArgumentError(f"{type(self).__name__}: lr is {value}; it cannot be negative")
            held.assign(filled((), float(value), dtypes.float32, device))
        realize(*self._rates.values())

    def change_rates(self, change: Callable[[float], float]) -> None:
        """Replace each rate, `lr` and those that groups have of their own, by ``change(rate)``.

        Raises ArgumentError where one of them is a schedule."""
        rate, *of_groups = [self._changed(one, change) for one in (self.lr, *self._group_lr)]
        self._group_lr = of_groups
        self.lr = rate

    def _changed(self, rate: float | Schedule | None, change: Callable[[float], float]) -> Any:
        if callable(rate):
            raise ArgumentError(f"{type(self).__name__}: a rate is a schedule; only numbers change")
        return None if rate is None else change(rate)

    def _next(self, name: str, index: int, keep: float, new: Tensor | float) -> Tensor:
        """Assign ``old * keep + new`` to one tensor of the state; returns its new value."""
        held = self.state[name][index]
        return held.assign(held * keep + new)

    def _steps(self, index: int, like: Tensor) -> Tensor:
        """The steps that a parameter took, this one included, in the dtype of `like`."""
        return self._counters[like.device].cast(like.dtype)[index]

    def _average(self, name: str, index: int, beta: float, new: Tensor) -> Tensor:
        """Move one average of the state towards `new`; returns it freed of its start at zero."""
        return self._unbiased(self._next(name, index, beta, new * (1.0 - beta)), index, beta)

    def _unbiased(self, held: Tensor, index: int, beta: float) -> Tensor:
        """`held` divided by 1 - beta ** step, whose reciprocal all elements share."""
        if beta == 0.0:
            return held
        power = self._counters[held.device].cast(held.dtype) * math.log(beta)
        kept = minimum(exp(power), 1.0 - 0.5**power.dtype.precision)
        # What exp loses near 1, log loses as well: expm1 in a few operations (Kahan).
        return held * (where(power < -1.0, 1.0, log(kept) / power) / (1.0 - kept))[index]
