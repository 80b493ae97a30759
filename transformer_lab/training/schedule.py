"""The learning rate at each step."""


def warmup_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """Return the paper's learning rate (section 5.3).

    It grows linearly for `warmup_steps` steps and then decreases in proportion to the inverse square root of the step.
    Steps are counted from 1; step 0 is treated as step 1.
    """
    step = max(step, 1)
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def linear_rate(step: int, peak_rate: float, warmup_steps: int, total_steps: int) -> float:
    """Return the learning rate for a run whose length is known.

    It grows linearly to `peak_rate` at step `warmup_steps` and then decreases linearly to zero at step `total_steps`. A
    run that ends with a small learning rate reaches a lower loss than a run that stops at the full learning rate.

    A run shorter than twice its warm-up spends the first half of its steps warming up to the same peak. If there is
    more than one step, the last step has a learning rate of 0 and leaves the weights unchanged.
    """
    step = max(step, 1)
    warmup_steps = max(1, min(warmup_steps, total_steps // 2))
    if step <= warmup_steps:
        return peak_rate * step / warmup_steps
    return peak_rate * (max(0, total_steps - step) / max(1, total_steps - warmup_steps))
