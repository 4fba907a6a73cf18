"""What all optimisers share: parameters and their groups, state, rates, and the step itself."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from typing import Any, NamedTuple

from lamina.core import dtypes
from lamina.core.dtypes import accumulator
from lamina.errors import ArgumentError, GradientError, JitError, ShapeError
from lamina.frontend.functions.elementwise import exp, log, minimum, where
from lamina.frontend.realize import called, home_of, over, realize
from lamina.frontend.session import SESSION, content_of, tracers
from lamina.frontend.tensor import Tensor, as_tensor, leaf
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.nn.schedules import Schedule
from lamina.nn.state import filled

__all__ = ["Optimizer"]

_GROUP_SETTINGS = ("params", "lr", "weight_decay")


class StateTensor(NamedTuple):
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
            raise GradientError("no parameters; nn.parameters(model) lists them", operation=what)
        for parameter in self.parameters:
            if not isinstance(parameter, Tensor) or not parameter.requires_grad:
                raise GradientError(
                    f"{parameter!r} was not made with requires_grad=True", operation=what
                )
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.type in (float, int) and not value >= 0.0:
                raise ArgumentError(
                    f"{setting.name} is {value}; it cannot be negative", operation=what
                )
        realize()  # now parameters have the memory that steps write to
        self.count = 0  # steps taken
        self.state = {name: self._filled(kind) for name, kind in self._state_tensors().items()}
        devices = dict.fromkeys(parameter.device for parameter in self.parameters)
        count = len(self.parameters)
        self._counters = {device: filled(count, 0.0, dtypes.float32, device) for device in devices}
        self.state["step"] = [*self._counters.values()]  # that each parameter took, from 1
        places = dict.fromkeys(
            (parameter.device, group)
            for parameter, group in zip(self.parameters, self._group_of, strict=True)
        )
        self._rates = {place: filled((), 0.0, dtypes.float32, place[0]) for place in places}
        self._set_rates(self.lr)

    def _read_groups(self) -> None:
        """Note for each parameter the number of its group, its rate and its weight decay."""
        parameters: Any = self.parameters
        entries = list(parameters) if isinstance(parameters, Iterable) else []
        self.parameters: list[Tensor] = []
        self._group_of: list[int] = []
        self._group_lr: list[float | Schedule | None] = []  # of each group
        self._decays: list[float] = []  # of each parameter
        grouped = bool(entries) and all(isinstance(entry, Mapping) for entry in entries)
        groups: list[Any] = entries if grouped else [{"params": entries}]
        for group in groups:
            unknown = [key for key in group if key not in _GROUP_SETTINGS]
            if unknown or "params" not in group:
                raise ArgumentError(
                    f"a group has {', '.join(group)}; it "
                    "needs params, and may have lr and weight_decay; take one "
                    "optimiser for each group otherwise",
                    operation=type(self).__name__,
                )
            tensors = group["params"]
            members = [tensors] if isinstance(tensors, Tensor) else list(tensors)
            decay = group.get("weight_decay", self.weight_decay)
            if not decay >= 0.0:
                raise ArgumentError(f"weight_decay is {decay}; it cannot "
                                    "be negative", operation=type(self).__name__)  # fmt: skip
            self.parameters += members
            self._group_of += [len(self._group_lr)] * len(members)
            self._decays += [decay] * len(members)
            self._group_lr.append(group.get("lr"))

    def _filled(self, kind: StateTensor) -> list[Tensor]:
        """A state tensor of each parameter, with its first value."""
        tensors = []
        for parameter in self.parameters:
            shape = () if kind.scalar else parameter.shape
            dtype = accumulator(parameter.dtype)
            tensors.append(filled(shape, kind.initial, dtype, parameter.device))
        return tensors

    def _state_tensors(self) -> Mapping[str, StateTensor]:
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
        for parameter in self.parameters:
            parameter.grad = None

    def step(
        self, gradients: Sequence[Tensor | None] | None = None, when: Tensor | None = None
    ) -> None:
        """Move every parameter against its gradient, all in one program.

        gradients: one for each of `parameters`, in this order; `grad` of each by default. A
        parameter whose gradient is None stays where it is. when: a bool of shape (); where it is
        false, which nobody on the host needs to know, parameters and state stay as they are."""
        parameters, what = self.parameters, type(self).__name__
        if not isinstance(gradients, Iterable):
            if gradients is None:
                gradients = [parameter.grad for parameter in parameters]
            else:
                gradients = [gradients]
        checked = [gradient if gradient is None else as_tensor(gradient) for gradient in gradients]
        if len(checked) != len(parameters):
            counts = f"{len(checked)} gradients for {len(parameters)} parameters"
            raise GradientError(counts, operation=what)
        if all(gradient is None for gradient in checked):
            raise GradientError(
                "no parameter has a gradient; call loss.backward() first", operation=what
            )
        for parameter, gradient in zip(parameters, checked, strict=True):
            if gradient is not None and gradient.shape != parameter.shape:
                shapes = f"gradient {gradient.shape} of parameter {parameter.shape}"
                raise ShapeError(shapes, operation=what)
        if any(map(callable, (self.lr, *self._group_lr))):
            if tracers.get():
                raise JitError("step: a schedule runs in Python, not in jit; set lr between calls")
            self._set_rates(self.lr)
        self._advance(
            [
                None if gradient is None else leaf(gradient.node, gradient.device)
                for gradient in checked
            ],
            None if when is None else leaf(when.node, when.device),
        )
        # The run would store whatever is still held.
        checked, gradients, gradient, when = [], None, None, None
        # Whatever layers assigned on the way, such as running statistics, belongs to this step.
        realize(*SESSION.assigned())
        self.count += 1

    def _advance(self, gradients: Sequence[Tensor | None], when: Tensor | None) -> None:
        """Assign the new parameters and state, which this step does not compute yet."""
        state = [tensor for tensors in self.state.values() for tensor in tensors]
        changing = [*self.parameters, *state]
        known = [gradient for gradient in gradients if gradient is not None]
        operands = [*changing, *self._rates.values(), *known]
        if when is not None:
            operands.append(when)
        nodes = [operand.node for operand in operands]
        leaves = {node for node in nodes if node.op is Op.BUFFER and home_of(node) in (None, node)}
        all_leaves = len(leaves) == len(nodes) and len(known) == len(gradients)
        of_this_package = type(self).__module__.rpartition(".")[0] == __package__
        # Settings and types tell what the classes of this package assign to leaves; classes from
        # elsewhere may look at anything.
        if all_leaves and of_this_package:
            self._advance_once_built(changing, nodes, gradients, when)
        else:
            self._assign_all(changing, gradients, when)

    def _advance_once_built(
        self, changing: Sequence[Tensor], nodes: list[Node],
        gradients: Sequence[Tensor | None], when: Tensor | None,
    ) -> None:  # fmt: skip
        """`_assign_all`, whose graph is built at the first step and called with the leaves `nodes`
        at later ones."""

        def build() -> list[Node]:
            self._assign_all(changing, gradients, when)
            return over([*map(_new_value, changing)], nodes)

        names = [field.name for field in fields(self) if field.name not in ("parameters", "lr")]
        values = [getattr(self, name) for name in names]
        settings = repr((values, self._decays, self._group_of))
        key = type(self), settings, when is None, *(node.arg[1:] for node in nodes)
        for tensor, node in zip(changing, called(key, nodes, build), strict=True):
            tensor._assign_node(node or tensor.node)

    def _assign_all(
        self, changing: Sequence[Tensor], gradients: Sequence[Tensor | None], when: Tensor | None
    ) -> None:
        """Assign all of `changing`, which stay as they are where `when` is false."""
        before = [tensor.node for tensor in changing]
        self._assign_moved(gradients)
        if when is None:
            return
        for tensor, old in zip(changing, before, strict=True):
            moved = Tensor.of(_new_value(tensor), tensor.device)
            kept = Tensor.of(old, tensor.device)
            tensor.assign(where(when.to(tensor.device), moved, kept))

    def _assign_moved(self, gradients: Sequence[Tensor | None]) -> None:
        steps = [float(gradient is not None) for gradient in gradients]
        for counter in self._counters.values():
            counter.assign(counter + (1.0 if all(steps) else Tensor(steps).to(counter.device)))
        for index, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            if gradient is None:
                continue
            kind = accumulator(parameter.dtype)
            rate = self._rates[parameter.device, self._group_of[index]]
            value, slope, factor = (x.detach().cast(kind) for x in (parameter, gradient, rate))
            parameter.assign(self._update(index, value, -slope if self.maximize else slope, factor))

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "lr" and hasattr(self, "_rates"):
            self._set_rates(value)  # which may refuse it
        super().__setattr__(name, value)

    def _set_rates(self, lr: float | Schedule) -> None:
        """Set the rate of each group: its own, or `lr`."""
        for (device, group), held in self._rates.items():
            rate_of_group = self._group_lr[group]
            chosen = lr if rate_of_group is None else rate_of_group
            value = chosen(self.count) if callable(chosen) else chosen
            if not value >= 0.0:
                raise ArgumentError(
                    f"lr is {value}; it cannot be negative", operation=type(self).__name__
                )
            held.assign(filled((), float(value), dtypes.float32, device))
        realize(*self._rates.values())

    def change_rates(self, change: Callable[[float], float]) -> None:
        """Replace each rate, `lr` and those that groups have of their own, by ``change(rate)``.

        Raises ArgumentError where one of them is a schedule."""
        rate, *of_groups = [self._changed(old, change) for old in (self.lr, *self._group_lr)]
        self._group_lr = of_groups
        self.lr = rate

    def _changed(self, rate: float | Schedule | None, change: Callable[[float], float]) -> Any:
        if callable(rate):
            raise ArgumentError(
                "a rate is a schedule; only numbers change", operation=type(self).__name__
            )
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


def _new_value(tensor: Tensor) -> Node:
    """What computes the value of `tensor`: where it was assigned, no leaf but what that is."""
    return content_of(tensor.node) if tensor.assigned else tensor.node
