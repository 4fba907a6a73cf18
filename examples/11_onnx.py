"""A file of ONNX is a function: it runs, becomes one program, is differentiated and trained."""

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import lamina as lm
from lamina import datasets, nn
from lamina.interop.onnx import load

rng = np.random.default_rng(0)


def weights(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(rng.normal(0, 0.2, shape).astype(np.float32), name)


# A small network of digits, as an exporter would write it; its head takes any number of images.
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["images", "kernel", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "head", "offset"], ["logits"], transB=1),
    ],
    "digits",
    [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 1, 8, 8])],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
    [weights("kernel", 16, 1, 3, 3), weights("bias", 16), weights("head", 10, 256),
     weights("offset", 10)],
)  # fmt: skip

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    model = load(path)
    evaluator = ReferenceEvaluator(str(path))

data = datasets.digits()
images, labels = data.train_images[:256], data.train_labels[:256]
(expected,) = evaluator.run(None, {"images": images.numpy()})
difference = abs(model(images).numpy() - expected).max()
print(f"{', '.join(model.inputs)} -> {', '.join(model.outputs)}; parameters {', '.join(model)}")
print(f"largest difference from onnx's reference evaluator: {difference:.1e}")
assert difference < 1e-4

# Weights are tensors, by the names that they have in the file.
for tensor in model.values():
    tensor.requires_grad = True
optimizer = nn.optim.Adam(list(model.values()), lr=0.01)


@lm.jit
def step(images: lm.Tensor, labels: lm.Tensor) -> lm.Tensor:
    loss = lm.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


losses = [step(images, labels).item() for _ in range(60)]
print(f"loss {losses[0]:.3f}, after {len(losses)} steps {losses[-1]:.3f}")
assert losses[-1] < losses[0] / 10
