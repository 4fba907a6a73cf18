"""What NVRTC refuses is named by its kernel, and by the line of the user's program."""

from __future__ import annotations

import re

import pytest

import lamina as lm
from lamina import TensorSpec
from lamina.errors import CompileError
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.targets.cuda.language import CudaLanguage
from lamina.targets.language import Value


@pytest.mark.usefixtures("nvrtc")
def test_a_refused_kernel_is_named_with_the_users_line(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CudaLanguage.operation

    def wrong(self: CudaLanguage, node: Node, operands: list[Value]) -> Value:
        if node.op is not Op.ATAN:  # other programs, such as one that draws a random key
            return right(self, node, operands)
        return operands[0]._replace(text="(1.0f +)")

    monkeypatch.setattr(CudaLanguage, "operation", wrong)
    program = lm.jit(lm.atan).lower(TensorSpec((3,)), device="cuda:0")
    with pytest.raises(CompileError) as caught:
        program.compile()
    message = str(caught.value)
    assert re.search(r"kernel map0_3\(\d+\): error", message)
    assert "test_complaints.py" in message
    assert "thread.py" not in message
