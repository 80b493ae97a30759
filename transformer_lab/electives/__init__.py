"""Topics around the Transformer: the answers and other parts of electives 20 to 23."""
