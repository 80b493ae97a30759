"""The learning rate of every step."""


def warmup_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """The paper's learning rate (section 5.3): it grows linearly for `warmup_steps` steps, then falls with the
    inverse square root of the step. Steps count from 1; step 0 counts as 1.
    """
    step = max(step, 1)
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def linear_rate(step: int, peak_rate: float, warmup_steps: int, total_steps: int) -> float:
    """A rate for a run whose length is known: linear up to `peak_rate` at `warmup_steps`, then linear down to zero at
    `total_steps`. A run that ends with small steps ends lower than one that is cut off in mid-flight.

    A run shorter than twice its warm-up takes half of its steps to get to the same peak. The last step of
    several has a rate of 0, and changes nothing.
    """
    step = max(step, 1)
    warmup_steps = max(1, min(warmup_steps, total_steps // 2))
    if step <= warmup_steps:
        return peak_rate * step / warmup_steps
    return peak_rate * max(0.0, (total_steps - step) / (total_steps - warmup_steps))
