"""Optimisers that divide each element's step by a measure of its gradients so far."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lamina.errors import ArgumentError
from lamina.frontend.functions.elementwise import abs, exp, expm1, maximum, sqrt, where
from lamina.frontend.functions.reduction import norm
from lamina.frontend.tensor import Tensor
from lamina.nn.optim.base import Optimizer, StateTensor
from lamina.nn.schedules import Schedule

__all__ = ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Lamb", "NAdam", "RAdam", "RMSprop"]


def check_betas(what: str, betas: tuple[float, float]) -> None:
    """Raises ArgumentError unless `betas`, the shares that two averages keep, are in [0, 1)."""
    if [0.0 <= beta < 1.0 for beta in betas] != [True, True]:
        raise ArgumentError(f"betas are {betas}, not two in [0, 1)", operation=what)


@dataclass(eq=False, repr=False)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1); `weight_decay` is added to the gradient.

    amsgrad: divide by the greatest average of squares so far (Reddi, Kale and Kumar 2018, "On the
    convergence of Adam and beyond", algorithm 2)."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    def _state_tensors(self) -> Mapping[str, StateTensor]:
        check_betas(type(self).__name__, self.betas)
        tensors = {"exp_avg": StateTensor(), "exp_avg_sq": StateTensor()}
        if self.amsgrad:
            tensors["max_exp_avg_sq"] = StateTensor()
        return tensors

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        first, second = self.betas
        mean = self._average("exp_avg", index, first, gradient)
        new = gradient * gradient * (1.0 - second)
        square = self._next("exp_avg_sq", index, second, new)
        if self.amsgrad:
            greatest = self.state["max_exp_avg_sq"][index]
            square = greatest.assign(maximum(greatest, square))
        return mean / (sqrt(self._unbiased(square, index, second)) + self.eps)


@dataclass(eq=False, repr=False)
class AdamW(Adam):
    """Adam whose weight decay is apart from the gradient (Loshchilov and Hutter 2019)."""

    weight_decay: float = 1e-2

    @property
    def decay_is_apart(self) -> bool:
        return True


@dataclass(eq=False, repr=False)
class Lamb(Adam):
    """Adam with a step as long as the parameter itself (You et al. 2020, algorithm 2).

    The trust ratio ``norm(parameter) / norm(update)`` is 1 where one of the norms is 0."""

    eps: float = 1e-6
    weight_decay: float = 1e-2

    def _update(self, index: int, parameter: Tensor, gradient: Tensor, rate: Tensor) -> Tensor:
        update = self._direction(index, gradient) + parameter * self._decays[index]
        size, length = (self.norm_of(index, x) for x in (parameter, update))
        useful = (size > 0.0) & (length > 0.0)
        ratio = where(useful, size / where(useful, length, 1.0), 1.0)
        return parameter - update * (ratio * rate)

    def norm_of(self, index: int, x: Tensor) -> Tensor:
        """The norm of the parameter of a number, or of x in its place."""
        return norm(x)


@dataclass(eq=False, repr=False)
class Adamax(Optimizer):
    """Adam with the greatest gradient so far in place of an average of squares (Kingma and Ba
    2015, algorithm 2)."""

    lr: float | Schedule = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def _state_tensors(self) -> Mapping[str, StateTensor]:
        check_betas("Adamax", self.betas)
        return {"exp_avg": StateTensor(), "exp_inf": StateTensor()}

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        first, second = self.betas
        mean = self._average("exp_avg", index, first, gradient)
        held = self.state["exp_inf"][index]
        greatest = held.assign(maximum(held * second, abs(gradient) + self.eps))
        return mean / greatest


@dataclass(eq=False, repr=False)
class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat 2016, "Incorporating Nesterov momentum into Adam").

    The momentum of step t is ``betas[0] * (1 - 0.96 ** (t * momentum_decay) / 2)``."""

    lr: float | Schedule = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False

    @property
    def decay_is_apart(self) -> bool:
        return self.decoupled_weight_decay

    def _state_tensors(self) -> Mapping[str, StateTensor]:
        check_betas("NAdam", self.betas)
        product = StateTensor(initial=1.0, scalar=True)  # of the momenta so far
        return {"exp_avg": StateTensor(), "exp_avg_sq": StateTensor(), "mu_product": product}

    def _momentum(self, step: Tensor) -> Tensor:
        return (1.0 - 0.5 * exp(step * (self.momentum_decay * math.log(0.96)))) * self.betas[0]

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        first, second = self.betas
        step = self._steps(index, gradient)
        now, later = self._momentum(step), self._momentum(step + 1.0)
        held = self.state["mu_product"][index]
        product = held.assign(held * now)
        mean = self._next("exp_avg", index, first, gradient * (1.0 - first))
        square = self._average("exp_avg_sq", index, second, gradient * gradient)
        ahead = gradient * ((1.0 - now) / (1.0 - product))
        ahead = ahead + mean * (later / (1.0 - product * later))
        return ahead / (sqrt(square) + self.eps)


@dataclass(eq=False, repr=False)
class RAdam(Optimizer):
    """Adam that goes along the average gradient itself until the average of squares has seen
    enough (Liu et al. 2020, "On the variance of the adaptive learning rate and beyond",
    algorithm 2)."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled_weight_decay: bool = False

    @property
    def decay_is_apart(self) -> bool:
        return self.decoupled_weight_decay

    def _state_tensors(self) -> Mapping[str, StateTensor]:
        check_betas("RAdam", self.betas)
        return {"exp_avg": StateTensor(), "exp_avg_sq": StateTensor()}

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        first, second = self.betas
        mean = self._average("exp_avg", index, first, gradient)
        square = self._average("exp_avg_sq", index, second, gradient * gradient)
        limit = 2.0 / (1.0 - second) - 1.0
        length = _average_length(self._steps(index, gradient), second)
        enough = length > 5.0
        known = where(enough, length, limit)  # keeps the root below finite
        ratio = (known - 4.0) * (known - 2.0) / known * (limit / ((limit - 4.0) * (limit - 2.0)))
        # PyTorch adds eps to the root of the average before its start at zero is made up for.
        spread = sqrt(square) + self.eps / sqrt(self._kept(index, second, gradient))
        return where(enough, mean * sqrt(ratio) / spread, mean)

    def _kept(self, index: int, beta: float, like: Tensor) -> Tensor:
        """1 - beta ** step."""
        return -expm1(self._steps(index, like) * math.log(beta))


def _average_length(step: Tensor, beta: float) -> Tensor:
    """The steps that an average with `beta` amounts to after `step` steps:
    ``2 / (1 - beta) - 1 - 2 step beta ** step / (1 - beta ** step)``, whose terms nearly cancel at
    first. With L = -log(beta) and y = step L it is a constant plus ``2 / L * (1 - y / expm1(y))``,
    and the last factor is y / 2 - y ** 2 / 12 + y ** 4 / 720 for small y."""
    rate = -math.log(beta)
    y = step * rate
    series = y * (0.5 + y * (-1.0 / 12.0 + y * y / 720.0))
    bounded = where(y < 0.25, 1.0, y)
    share = where(y < 0.25, series, 1.0 - bounded / expm1(bounded))
    return share * (2.0 / rate) + (2.0 / (1.0 - beta) - 1.0 - 2.0 / rate)


@dataclass(eq=False, repr=False)
class Adagrad(Optimizer):
    """Steps divided by the root of the sum of squares (Duchi, Hazan and Singer 2011, "Adaptive
    subgradient methods"). lr_decay: the rate of step t is ``lr / (1 + (t - 1) * lr_decay)``."""

    lr: float | Schedule = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    def _state_tensors(self) -> Mapping[str, StateTensor]:
        return {"sum": StateTensor(self.initial_accumulator_value)}

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        total = self._next("sum", index, 1.0, gradient * gradient)
        update = gradient / (sqrt(total) + self.eps)
        if not self.lr_decay:
            return update
        return update / ((self._steps(index, gradient) - 1.0) * self.lr_decay + 1.0)


@dataclass(eq=False, repr=False)
class Adadelta(Optimizer):
    """Steps as long as earlier ones were, compared with their gradients (Zeiler 2012, "ADADELTA",
    algorithm 1)."""

    lr: float | Schedule = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0

    def _state_tensors(self) -> Mapping[str, StateTensor]:
        if self.rho > 1.0:
            raise ArgumentError(f"rho is {self.rho}, not in [0, 1]", operation="Adadelta")
        return {"square_avg": StateTensor(), "acc_delta": StateTensor()}

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        share = 1.0 - self.rho
        square = self._next("square_avg", index, self.rho, gradient * gradient * share)
        before = self.state["acc_delta"][index]
        update = gradient * sqrt(before + self.eps) / sqrt(square + self.eps)
        self._next("acc_delta", index, self.rho, update * update * share)
        return update


@dataclass(eq=False, repr=False)
class RMSprop(Optimizer):
    """Steps divided by the root of an average of squares (Tieleman and Hinton 2012)."""

    lr: float | Schedule = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    def _state_tensors(self) -> Mapping[str, StateTensor]:
        tensors = {"square_avg": StateTensor()}
        if self.centered:
            tensors["grad_avg"] = StateTensor()
        if self.momentum:
            tensors["momentum"] = StateTensor()
        return tensors

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        share = 1.0 - self.alpha
        spread = self._next("square_avg", index, self.alpha, gradient * gradient * share)
        if self.centered:
            mean = self._next("grad_avg", index, self.alpha, gradient * share)
            spread = spread - mean * mean
        update = gradient / (sqrt(spread) + self.eps)
        return self._next("momentum", index, self.momentum, update) if self.momentum else update
