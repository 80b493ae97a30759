-- The tables of gradebook.sqlite. IF NOT EXISTS: gradebooks from earlier versions lack the roster.
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY,
    started TEXT NOT NULL,
    finished TEXT,                  -- NULL while it is running or if it was interrupted
    version TEXT NOT NULL,          -- of the package
    sources TEXT NOT NULL,          -- digest of the package's source code
    seed TEXT NOT NULL,             -- secret: the hidden inputs depend on it
    sandboxed INTEGER,              -- NULL if nothing was run
    only_exercise TEXT NOT NULL,    -- empty unless only this exercise was regraded
    paths TEXT NOT NULL             -- JSON
);
CREATE TABLE IF NOT EXISTS handed_in (
    run INTEGER NOT NULL REFERENCES runs (id),
    place INTEGER NOT NULL,
    student TEXT NOT NULL,
    digest TEXT NOT NULL,
    path TEXT NOT NULL,
    PRIMARY KEY (run, place)
);
CREATE TABLE IF NOT EXISTS results (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (id),
    graded TEXT NOT NULL,
    student TEXT NOT NULL,
    digest TEXT NOT NULL,           -- of the submission and the package's version
    notebook TEXT NOT NULL,
    final INTEGER NOT NULL,         -- 0 if it has to be graded again
    result TEXT NOT NULL            -- JSON
);
CREATE INDEX IF NOT EXISTS results_of ON results (student, digest);
CREATE VIEW IF NOT EXISTS marks AS
    SELECT run, graded, student, notebook,
           json_extract(exercise.value, '$.exercise') AS exercise, json_extract(exercise.value, '$.state') AS state,
           json_extract(exercise.value, '$.earned') AS earned, json_extract(exercise.value, '$.possible') AS possible
    FROM results, json_each(result, '$.exercises') AS exercise;
CREATE TABLE IF NOT EXISTS roster (
    place INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    number TEXT NOT NULL            -- from Moodle or Canvas; may be empty
);
