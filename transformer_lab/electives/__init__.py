"""What surrounds the Transformer: answers and parts of the electives 20 to 23."""
