"""What the most common exceptions mean, in one sentence each."""

import re

# Each pattern is searched for in "Type: message", and the first one that matches counts.
_MEANINGS = {
    # how something is called
    r"missing \d+ required|takes .* positional arguments? but|unexpected keyword": "The check calls it as "
    "`{signature}`.",
    r"before Module\.__init__\(\) call": "The first line of `__init__` has to be `super().__init__()`.",
    r"\[ModuleList\] is missing": "A `ModuleList` only holds layers and can't be called: loop over them.",
    r'missing the required "forward"': "The class has no method `forward`: check its spelling and its indentation.",
    r"'(?:builtin_function_or_method|method|function)' object is not subscriptable": "A function or method is called "
    "with round brackets, as in `x.size(0)`.",
    r"'(?:Tensor|torch\.Size|numpy\.ndarray|list|tuple|dict)' object is not callable": "Square brackets look up "
    "elements, as in `x[0]` or `x.shape[0]`; round brackets call a function.",
    r"received an invalid combination of arguments": "This function doesn't take such arguments: the message shows "
    "their types, then what the function takes.",
    r"must be Tensor, not (float|int)\b": "This function of torch's takes a tensor. For a single {0}, use `math`.",
    r"must be tuple of Tensors, not Tensor": "This function takes a list of tensors, as in "
    "`torch.cat([a, b], dim=-1)`.",
    # what something is
    r"must be Tensor, not tuple|'tuple' object has no attribute|unsupported operand .*'tuple'": "This is a tuple of "
    "several values: pick one, or unpack it as in `output, weights = …`.",
    r"torch\.return_types\.": "With `dim`, `max`, `min`, `sort`, and `topk` return the values and their indices: use "
    "`.values` or `.indices`.",
    r"'NoneType'|not NoneType": "Something here is None. Is a `return` missing, or is None allowed for it?",
    r"'numpy\.ndarray' object has no attribute '(masked_fill|unsqueeze|softmax|log_softmax|permute|exp|sqrt|float|long|"
    r"double|detach|numel|dim|eq|where)'": "`{0}` is a method of torch's tensors, but this is a NumPy array.",
    r"'Tensor' object has no attribute '(astype|copy)'": "`{0}` is a method of NumPy's arrays, but this is a tensor.",
    r"'(?:generator|map|zip|filter)' (?:object is not subscriptable|has no len)": "An iterator can only be read once, "
    "from front to back: turn it into a list first.",
    r"unhashable type: '(?:list|dict|set)'": "Only values that can't change can be in a set or serve "
    "as keys: use a tuple.",
    r"cannot assign .* as parameter": "Assign an `nn.Parameter`, not a plain tensor.",
    r"list indices must be .* not tuple": "A list has a single index: write `x[0][1]`, or make a tensor of it first.",
    r"'float' object cannot be interpreted|slice indices must be|\(got float\)|indices must be .* not float|"
    r"ints, ?but got float": "Sizes and indices have to be whole numbers. Division with `/` always makes a float: use "
    "`//`.",
    r"value of Tensor with more than one|truth value of an array with": "`if`, `and`, `or`, and `not` need a single "
    "True or False. To combine masks, use `&`, `|`, and `~`.",
    r"cannot be converted to Scalar|only one element tensors": "A tensor with several numbers can't become a single "
    "number. To join tensors, use `torch.stack`.",
    # gradients
    r"call numpy\(\) on Tensor that requires grad": "NumPy doesn't record gradients: use torch instead.",
    r"leaf Variable that requires grad": "This would change the input in place: compute a new tensor instead.",
    r"modified by an inplace operation": "The gradient needs a value that was overwritten, by `+=` for example, or by "
    "a method that ends in `_`: compute a new tensor instead.",
    r"does not require grad and does not have a grad_fn": "No gradient was recorded. `no_grad`, `detach`, `item`, and "
    "`torch.tensor(…)` all interrupt the recording.",
    # shapes
    r"view size is not compatible": "`view` works only if the numbers are in memory in the order of the axes, "
    "and `transpose` has changed that order: use `reshape`, which copies them if it has to.",
    r"is invalid for input of size|cannot reshape array": "The new shape has to hold exactly as many numbers as the "
    "old one.",
    r"cannot be multiplied|for batch1 to be|dimensions of batch2|size mismatch|mismatch in its core dimension": "In a "
    "matrix product, the last axis of the first factor has to be as long as the second-to-last axis of the second.",
    r"must match the size of tensor b|could not be broadcast": "Axes are aligned from the right: the two sizes of each "
    "pair have to be equal, unless one of them is 1.",
    r"must match the existing size|could not broadcast input": "An axis can only be expanded if its size is 1.",
    r"must match except in dimension|must have same number of dimensions|expects each tensor to be equal": "`cat` "
    "needs the same sizes on all axes except the one it joins, and `stack` needs the same shape.",
    r"Dimension out of range|axis -?\d+ is out of bounds|too many indices for": "There are fewer axes than that. They "
    "are counted from 0, and -1 is the last one.",
    r"too many values to unpack|not enough values to unpack": "There have to be as many names on the left as values on "
    "the right. (A tensor is unpacked along its first axis.)",
    r"Expected target size": "`cross_entropy` expects the vocabulary in the second axis of the logits.",
    r"selected index k out of range": "`topk` can't return more elements than there are.",
    r"is out of bounds|index out of range": "Positions and token IDs are counted from 0, so the last one is the size "
    "minus 1.",
    # dtypes
    r"to have the same dtype|expected scalar type": "The inputs are float64 here, but another tensor isn't: create "
    "tensors with the dtype of the inputs.",
    r"scalar types: Long, Int|int32/int64 for index|target dtype to be Long": "Token IDs and indices have to be "
    "integers.",
    r"operator, (?:on|with) a bool tensor is not supported": "To invert a boolean mask, write `~mask`.",
    r"only implemented on integer and Boolean|not implemented for '(?:Float|Double)'|only supports boolean masks|"
    r"to be a boolean tensor|ufunc '(?:bitwise_\w+|invert)' not supported": "In this course, masks are boolean.",
    # anything else
    r"either `inf`, `nan` or element < 0": "A softmax over nothing but minus infinity is NaN.",
    r"^RecursionError": "It never stops calling itself.",
    r"^NameError: name '(\w+)' is not defined": "Did you run the cell that defines or imports `{0}`?",
    r"^SystemExit|^KeyboardInterrupt": "It tried to end the program.",
    r"^NotImplementedError: ?$": "Part of it isn't written yet: the line that raises this exception is still there.",
}


def meaning(text: str, signature: str, is_own_call: bool) -> str:
    """Return what an exception means, or "" if it is not a common one.

    Args:
        text: The exception, as "Type: message".
        signature: The exercise's name and parameters.
        is_own_call: Whether the exercise itself may have been called with the wrong arguments. If it was a different
            function, the signature does not help.
    """
    for pattern, says in _MEANINGS.items():
        match = re.search(pattern, text)
        if match and (is_own_call or "{signature}" not in says):
            return says.format(*match.groups(), signature=signature)
    return ""
