"""Grade a class: assemble submissions, run them in a sandbox, and score them out of their code's reach."""
