import pytest

from transformer_lab.training.schedule import linear_rate, warmup_rate


@pytest.mark.parametrize(
    ("step", "rate"),
    [  # section 5.3 worked out by hand for d_model 512, warm-up 4000: 512^-0.5 = 0.04419417
        (1, 0.04419417 / 4000**1.5),
        (2000, 0.04419417 * 2000 / 4000**1.5),
        (4000, 0.04419417 / 4000**0.5),  # 0.000699, the peak
        (16000, 0.04419417 / 16000**0.5),  # half of the peak
    ],
)
def test_warmup_rate_is_the_papers_formula(step, rate):
    """A wrong exponent, or a step count that starts at the wrong number, would show at one of these points."""
    assert warmup_rate(step, d_model=512, warmup_steps=4000) == pytest.approx(rate, rel=1e-6)  # the digits of 512^-0.5


def test_step_zero_has_the_rate_of_step_one():
    """At step 0, raising the step to the power of -0.5 would divide by zero."""
    assert warmup_rate(0, 512, 4000) == warmup_rate(1, 512, 4000) > 0


def test_linear_rate_rises_to_the_peak_and_falls_to_zero_at_the_last_step():
    """A decay that misses zero, or a peak at the wrong step, wastes part of a fixed budget."""
    rates = [linear_rate(step, peak_rate=0.5, warmup_steps=10, total_steps=110) for step in range(1, 111)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[9] == 0.5 == max(rates)
    assert rates[59] == pytest.approx(0.25)  # halfway down
    assert rates[-1] == 0.0


def test_linear_rate_in_a_run_that_is_shorter_than_its_warmup():
    """A very short run, such as a first try on your own data, must not divide by zero or end at its highest rate."""
    rates = [linear_rate(step, peak_rate=1.0, warmup_steps=400, total_steps=10) for step in range(1, 11)]
    assert max(rates) == rates[4] == 1.0
    assert rates[-1] == 0.0
    assert linear_rate(1, peak_rate=1.0, warmup_steps=400, total_steps=1) == 1.0
    assert linear_rate(2, peak_rate=1.0, warmup_steps=400, total_steps=1) == 0.0  # after the end
