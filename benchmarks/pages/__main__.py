"""Write what is generated for the pages anew.

python -m benchmarks.pages     docs/options.md, docs/environments.md and docs/pictures/*.svg
"""

from __future__ import annotations

from benchmarks.pages.drawings import DRAWINGS, FOLDER
from benchmarks.pages.generated import GENERATED, ROOT, page


def main() -> None:
    """Write the files that are not current."""
    files = {ROOT / "docs" / name: page(name) for name in GENERATED}
    files |= {FOLDER / f"{name}.svg": draw().text() for name, draw in DRAWINGS.items()}
    for file, text in files.items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(f"{file.relative_to(ROOT)} is new")


if __name__ == "__main__":
    main()
