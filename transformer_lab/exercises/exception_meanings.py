"""What the most common exceptions mean, in one sentence each."""

import re

# Each pattern is searched for in "Type: message", and the first one that matches counts.
_MEANINGS = {
    # how something is called
    r"missing \d+ required|takes .* positional arguments? but|unexpected keyword": "The check calls it as "
    "`{signature}`.",
    r"before Module\.__init__\(\) call": "The first line of `__init__` has to be `super().__init__()`.",
    r"\[ModuleList\] is missing": "A `ModuleList` only holds layers and can't be called: loop over them.",
    r'missing the required "forward"': "The class in brackets has no `forward`: check spelling and indentation.",
    r"'(?:builtin_function_or_method|method|function)' object is not subscriptable": "Functions and methods take "
    "parentheses, as in `x.size(0)`.",
    r"'(?:Tensor|torch\.Size|numpy\.ndarray|list|tuple|dict)' object is not callable": "This isn't a function, so "
    "don't put `(` after it. Look up elements with `x[0]` or `x.shape[0]`.",
    r"received an invalid combination of arguments": "This function can't take these arguments: the message lists the "
    "types you passed, then the valid ones.",
    r"must be Tensor, not (float|int)\b": "Pass a tensor here. To apply a function to a single {0}, use `math`.",
    r"must be tuple of Tensors, not Tensor": "This function takes a list of tensors, as in `torch.cat([a, b], "
    "dim=-1)`.",
    # what something is
    r"must be Tensor, not tuple|'tuple' object has no attribute|unsupported operand .*'tuple'": "Something here is a "
    "tuple: pick a value, or unpack it as in `output, weights = …`.",
    r"torch\.return_types\.": "`sort`, `topk`, and `max`/`min` with a `dim` return the values and their indices: use "
    "`.values` or `.indices`.",
    r"'NoneType'|not NoneType": "Something here is None. Is a `return` missing, or an argument optional?",
    r"'numpy\.ndarray' object has no attribute '(masked_fill|unsqueeze|softmax|log_softmax|permute|exp|sqrt|"
    r"float|long|double|detach|numel|dim|eq|where)'": "`{0}` is a method of torch tensors, but this is a NumPy array.",
    r"'Tensor' object has no attribute '(astype|copy)'": "`{0}` is a method of NumPy arrays, but this is a tensor.",
    r"'(?:generator|map|zip|filter)' (?:object is not subscriptable|has no len)": "An iterator can only be read once, "
    "from front to back: turn it into a list first.",
    r"unhashable type: '(?:list|dict|set)'": "A list, dict, or set can't be a dictionary key or in a set: use a tuple.",
    r"cannot assign .* as parameter": "This has to be an `nn.Parameter`, or None.",
    r"list indices must be .* not tuple": "A list takes a single index: write `x[0][1]`, or make it a tensor first.",
    r"'float' object cannot be interpreted|slice indices must be|\(got float\)|indices must be .* not float|"
    r"ints, ?but got float": "Sizes and indices have to be integers. `/` always yields a float: use `//` or `int(…)`.",
    r"value of Tensor with more than one|truth value of an array with": "`if`, `and`, `or`, `not`, and `max(0, x)` "
    "need one True or False. For masks, use `&`, `|`, `~`.",
    r"cannot be converted to Scalar|only one element tensors": "Only a one-element tensor can become a single number. "
    "To join tensors, use `torch.stack`.",
    # gradients
    r"call numpy\(\) on Tensor that requires grad": "NumPy doesn't record gradients: use torch instead.",
    r"leaf Variable that requires grad": "This would change an input or a weight in place: make a new tensor.",
    r"modified by an inplace operation": "A value that the gradient needs was overwritten, for example by `+=`, `x[i] "
    "= …`, or a method ending in `_`: compute a new tensor.",
    r"does not require grad and does not have a grad_fn": "Torch didn't record how this was computed: look for "
    "`no_grad`, `detach`, `item`, or `torch.tensor(…)`.",
    # shapes
    r"view size is not compatible": "`view` needs the numbers side by side in memory, in the order of the axes. A "
    "`transpose` or a slice can break that: use `reshape`, which copies if it has to.",
    r"is invalid for input of size|cannot reshape array": "The new shape has to hold exactly as many numbers as the "
    "old one.",
    r"cannot be multiplied|for batch1 to be|dimensions of batch2|size mismatch, got|"
    r"mismatch in its core dimension": "In a matrix product `a @ b`, the last axis of `a` must match the "
    "second-to-last of `b` (a layer's `in_features`).",
    r"must match the size of tensor b|could not be broadcast": "In broadcasting, axes are aligned from the right: "
    "each pair of sizes has to be equal or contain a 1.",
    r"must match the existing size|could not broadcast input": "Sizes have to match: only size 1 can expand.",
    r"must match except in dimension|must have same number of dimensions|expects each tensor to be equal": "`cat` "
    "needs the same sizes on all axes except the one it joins, and `stack` needs the same shape.",
    r"Dimension out of range|axis -?\d+ is out of bounds|too many indices for": "There aren't that many axes. "
    "Counting starts at 0, and -1 is the last axis.",
    r"too many values to unpack|not enough values to unpack": "The number of names has to equal the number of values. "
    "(A tensor is unpacked along its first axis.)",
    r"Expected target size": "`cross_entropy` expects `(batch, vocab, length)` and `(batch, length)`.",
    r"selected index k out of range": "`topk` can't return more than the axis contains.",
    r"is out of bounds|index out of range": "Indices go from 0 to the size minus 1, token IDs to the vocabulary size "
    "minus 1.",
    # dtypes
    r"to have the same dtype|expected scalar type": "The dtypes differ. Float inputs are float64 here: convert the "
    "other tensor with `.to(x.dtype)`.",
    r"scalar types: Long, Int|int32/int64 for index|target dtype to be Long": "Convert token IDs and indices to int64.",
    r"operator, (?:on|with) a bool tensor is not supported": "To invert a boolean mask, write `~mask`.",
    r'only implemented on integer and Boolean|"bitwise_\w+" not implemented|only supports boolean masks|'
    r"to be a boolean tensor|ufunc '(?:bitwise_\w+|invert)' not supported": "This needs booleans, not numbers.",
    # anything else
    r"either `inf`, `nan` or element < 0": "These aren't probabilities: are they logits, or NaN from a row with "
    "nothing but -inf?",
    r"^RecursionError": "It keeps calling itself.",
    r"^NameError: name '(\w+)' is not defined": "Is `{0}` misspelled, or in a cell you haven't run?",
    r"^SystemExit|^KeyboardInterrupt": "It tried to end the program.",
    r"^NotImplementedError: ?$": "Part of your code isn't written yet: replace the line that raises this exception.",
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
