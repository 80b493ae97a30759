"""Write the `captions` corpus, which ships with the package: `python tools/captions/write_captions.py [FILE]`.

Run it after every change to the grammar. Scores from the old corpus are then no longer comparable, so measure them
again.
"""

import lzma
import sys
from pathlib import Path

from sentences import generate_captions

from transformer_lab.data.captions import FILE

COUNT = 50_000


def corpus_text(count: int = COUNT) -> str:
    return "".join(f"{caption.german}\t{caption.english}\t{caption.links}\n" for caption in generate_captions(count))


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    path.write_bytes(lzma.compress(corpus_text().encode(), preset=7 | lzma.PRESET_EXTREME))
    print(f"wrote {path} ({path.stat().st_size:,} bytes)")
