"""Make the modules of tests/engines importable for the campaign, which is a program of its own."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "engines"))
