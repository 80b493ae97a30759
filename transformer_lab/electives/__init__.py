"""Topics related to the Transformer: the answers to the exercises in electives 20 to 23, and code for them."""
