"""Data-parallel training on scikit-learn's digits: pycomm run -n 4 --nodes 2 bench/train_digits.py

A perceptron with one hidden layer, written with NumPy. Every rank computes the gradient of its share of each
batch; one all-reduce adds them up. Three things must hold at the end, and the exit status says whether they
do: all ranks hold the same weights bit for bit, the losses are those of a training by one process, and the
digits that nobody trained on are recognised.
"""

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import pycomm

Array = NDArray[np.float64]

EPOCHS = 25
BATCH = 96
HELD_OUT = 5  # every fifth image
RATE = 0.2
MOMENTUM = 0.9
LAYERS = (64, 48, 10)


class Perceptron:
    """Two layers whose weights lie in one flat vector, so that one all-reduce takes the whole gradient."""

    def __init__(self, seed: int) -> None:
        inputs, hidden, outputs = LAYERS
        noise = np.random.default_rng(seed)
        self.weights = np.concatenate(
            [
                noise.normal(0, inputs**-0.5, inputs * hidden),
                np.zeros(hidden),
                noise.normal(0, hidden**-0.5, hidden * outputs),
                np.zeros(outputs),
            ]
        )
        self._momentum = np.zeros_like(self.weights)

    @staticmethod
    def layers(flat: Array) -> tuple[Array, Array, Array, Array]:
        """The matrices and offsets of both layers, as views of a flat vector."""
        inputs, hidden, outputs = LAYERS
        cuts = np.cumsum([inputs * hidden, hidden, hidden * outputs])
        w1, b1, w2, b2 = np.split(flat, cuts)
        return w1.reshape(inputs, hidden), b1, w2.reshape(hidden, outputs), b2

    def predict(self, images: Array) -> tuple[Array, Array]:
        """The hidden layer, and the probability of each digit."""
        w1, b1, w2, b2 = self.layers(self.weights)
        hidden = np.maximum(images @ w1 + b1, 0)
        scores = hidden @ w2 + b2
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, scores / scores.sum(axis=1, keepdims=True)

    def gradient(self, images: Array, digits: NDArray[np.int64]) -> Array:
        """The gradient of the cross-entropy, summed over the images, with that sum as the last element."""
        hidden, probability = self.predict(images)
        index = np.arange(len(digits))
        result = np.empty(self.weights.size + 1)
        result[-1] = -np.log(probability[index, digits]).sum()
        probability[index, digits] -= 1
        w1, b1, w2, b2 = self.layers(result[:-1])
        back = (probability @ self.layers(self.weights)[2].T) * (hidden > 0)
        w1[:], b1[:] = images.T @ back, back.sum(axis=0)
        w2[:], b2[:] = hidden.T @ probability, probability.sum(axis=0)
        return result

    def descend(self, gradient: Array) -> None:
        """One step of stochastic gradient descent with momentum."""
        self._momentum = MOMENTUM * self._momentum + gradient
        self.weights -= RATE * self._momentum


def train(
    images: Array, digits: NDArray[np.int64], share: slice, add_up: Callable[[Array], Any]
) -> tuple[Perceptron, list[float]]:
    """The trained network and the mean loss of each epoch; `share` are this rank's images of each batch."""
    network = Perceptron(seed=0)
    order = np.random.default_rng(1)
    losses = []
    for _ in range(EPOCHS):
        shuffled = order.permutation(len(digits))
        loss = 0.0
        for start in range(0, len(digits) - BATCH + 1, BATCH):
            mine = shuffled[start : start + BATCH][share]
            gradient = network.gradient(images[mine], digits[mine])
            add_up(gradient)
            gradient /= BATCH
            loss += gradient[-1]
            network.descend(gradient[:-1])
        losses.append(loss / (len(digits) // BATCH))
    return network, losses


def main() -> int:
    data = load_digits()
    images, digits = data.data / 16.0, data.target.astype(np.int64)
    held_out = np.arange(len(digits)) % HELD_OUT == 0
    lessons = images[~held_out], digits[~held_out]
    with threadpool_limits(1), pycomm.init() as comm:
        share = slice(BATCH * comm.rank // comm.size, BATCH * (comm.rank + 1) // comm.size)
        network, losses = train(*lessons, share, lambda gradient: comm.all_reduce(gradient, out=gradient))
        own_hash = np.frombuffer(hashlib.sha256(network.weights.tobytes()).digest(), np.uint8)
        hashes = comm.all_gather(own_hash)
        if comm.rank:
            return 0
        alone, reference = train(*lessons, slice(BATCH), lambda gradient: None)
    same = bool((hashes == hashes[0]).all())
    losses_apart = float(np.max(np.abs(np.array(losses) / np.array(reference) - 1)))
    weights_apart = float(np.max(np.abs(network.weights - alone.weights)))
    recognised = float(np.mean(network.predict(images[held_out])[1].argmax(axis=1) == digits[held_out]))
    print(f"loss, epoch 1 to {EPOCHS}: {losses[0]:.6f} to {losses[-1]:.6f}")
    print(f"weights on {len(hashes)} ranks: {'bit-identical' if same else 'DIFFERENT'}", end=", ")
    print(f"SHA-256 {hashes[0].tobytes().hex()[:16]}…")
    print(f"against one process: losses within {losses_apart:.1e}, weights within {weights_apart:.1e}")
    print(f"held-out digits recognised: {recognised:.1%} of {held_out.sum()}")
    return int(not (same and losses_apart < 1e-9 and recognised >= 0.95))


if __name__ == "__main__":
    sys.exit(main())
