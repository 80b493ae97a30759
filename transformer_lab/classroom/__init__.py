"""The classroom: submissions are assembled, run in a sandbox, and scored where their code cannot reach."""
