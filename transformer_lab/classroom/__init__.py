"""Grade a class: assemble submissions, run them in a sandbox, and score them where their code cannot interfere."""
