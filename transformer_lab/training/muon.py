"""Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"), which is newer than the paper.

The gradient of a weight matrix often has nearly low rank: it is large in a few directions and tiny in the others. Muon
takes a step of the same size in every direction. Adam treats each weight separately and cannot see directions.
"""

import torch
from torch import Tensor, nn

# From Jordan et al.: after five rounds of this polynomial, every singular value between 0.01 and 1 is roughly 1. To get
# closer to 1, another polynomial would need more rounds.
POLYNOMIAL, ROUNDS = (3.4445, -4.7750, 2.0315), 5


class Muon(torch.optim.AdamW):
    """Muon for matrices and Adam for everything else, with one learning rate.

    An Adam step changes each weight by about 0.2 times the learning rate. A step of Muon is multiplied by 0.2 √(the
    longer side) so that it has the same size (Liu et al. 2025, "Muon is Scalable for LLM Training"). `torch.optim.Muon`
    takes the same steps with `adjust_lr_fn="match_rms_adamw"`, one matrix at a time. Here, matrices of the same shape
    are processed together, which is faster when there are many small matrices.

    A step clears the gradients of the matrices. As in torch's fused optimizers, it leaves the weights unchanged if the
    `found_inf` attribute (a tensor) is 1.

    Args:
        matrices: Parameters with two dimensions, excluding the embeddings and the output layer because their rows are
            tokens.
        others: Parameters for Adam.
        lr: Learning rate of both Muon and Adam.
        momentum: Nesterov momentum of Muon.
        weight_decay: Weight decay of both Muon and Adam.
        precision: The dtype for orthogonalization. `torch.bfloat16` is precise enough if the hardware supports it.
        adam: Other arguments of `torch.optim.AdamW`, such as `betas`.
    """

    def __init__(
        self,
        matrices: list[nn.Parameter],
        others: list[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        precision: torch.dtype = torch.float32,
        **adam: object,
    ) -> None:
        groups = [{"params": others}, {"params": matrices}]
        super().__init__(groups, lr=lr, weight_decay=weight_decay, **adam)
        self.momentum, self.precision = momentum, precision

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        rate, weight_decay = (self.param_groups[1][name] for name in ("lr", "weight_decay"))
        decay, skip = 1 - rate * weight_decay, None
        if hasattr(self, "found_inf"):
            skip = self.found_inf.bool()
            decay = torch.where(skip, 1.0, decay)
        by_shape: dict[torch.Size, list[nn.Parameter]] = {}
        for matrix in self.param_groups[1]["params"]:
            if matrix.grad is not None:
                by_shape.setdefault(matrix.shape, []).append(matrix)
        for shape, matrices in by_shape.items():
            gradients = [matrix.grad for matrix in matrices]
            for matrix in matrices:
                if "momentum_buffer" not in self.state[matrix]:
                    self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
                matrix.grad = None  # Adam skips parameters without a gradient
            momenta = [self.state[matrix]["momentum_buffer"] for matrix in matrices]
            torch._foreach_lerp_(momenta, gradients, 1 - self.momentum)
            ahead = torch._foreach_lerp(gradients, momenta, self.momentum)  # Nesterov momentum
            directions = orthogonalize(torch.stack(ahead).to(self.precision)).to(matrices[0].dtype)
            if skip is not None:
                directions = directions.masked_fill(skip, 0.0)
            torch._foreach_mul_(matrices, decay)
            torch._foreach_add_(matrices, directions.unbind(), alpha=-rate * 0.2 * max(shape) ** 0.5)
        super().step()


def orthogonalize(matrices: Tensor) -> Tensor:
    """Return matrices with the same singular vectors but with singular values of about 1 (0.68 to 1.14).

    Very small singular values stay below this range.

    If M = U S Vᵀ, then M Mᵀ M = U S³ Vᵀ: an odd polynomial of a matrix acts on its singular values, without a
    decomposition. This is a Newton–Schulz iteration with the polynomial of Jordan et al. It moves singular values above
    0.01 times the norm of the matrix toward 1.

    Args:
        matrices: `(count, rows, columns)`, of any size.

    Returns:
        A tensor of the same shape and dtype.
    """
    if matrices.size(1) > matrices.size(2):
        return orthogonalize(matrices.mT).mT
    first, third, fifth = POLYNOMIAL
    # No singular value is larger than the square root of the sum of all squares.
    x = matrices / matrices.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    for _ in range(ROUNDS):
        squares = x @ x.mT  # (count, rows, rows)
        x = torch.baddbmm(x, torch.baddbmm(squares, squares, squares, beta=third, alpha=fifth), x, beta=first)
    return x
