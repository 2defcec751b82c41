"""Write the marked tables of README.md and docs/ anew from the stored rows: scripts/refresh_tables.py [PAGE ...]"""

import sys
from pathlib import Path

from anchormoe.report.documents import PAGE_EXPERIMENTS, refresh
from anchormoe.running.store import load_results

ROOT = Path(__file__).resolve().parent.parent


def main(pages: list[Path]) -> None:
    rows = load_results(ROOT / "results", PAGE_EXPERIMENTS, kind=None)
    for page in pages:
        before = page.read_text(encoding="utf-8")
        after = refresh(before, rows)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"wrote {page}")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
