"""Make the modules of tests/engines and tests/objectstore importable for the campaign, a program of its own."""

import sys
from pathlib import Path

for _name in ("engines", "objectstore"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / _name))
