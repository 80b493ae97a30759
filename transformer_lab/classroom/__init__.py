"""The classroom: what is handed in is assembled anew, run in a sandbox, and scored where its code cannot reach."""
