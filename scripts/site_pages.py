"""The pages of the documentation site, as a hook of mkdocs (mkdocs.yml).

The site has the folders of the project: README.md is its first page, docs/, results/ and benchmarks/ lie below. Links
between pages are therefore the same in both. A link to a file that is no page, such as a source file, becomes text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
SHOWN = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md", "docs/*", "results/*.md", "benchmarks/*.md")
IMAGES = ("docs/images/*", "docs/images/theory/*", "results/*.png", "benchmarks/*.png")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by all pages and images under their paths in the project; keep the theme's."""
    paths = sorted(path for pattern in SHOWN + IMAGES for path in ROOT.glob(pattern) if path.is_file())
    own = [
        File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls) for path in paths
    ]
    return Files([*(file for file in files if file.src_dir != config.docs_dir), *own])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to what is in the project and not on the site into their text."""
    folder = posixpath.dirname(page.file.src_uri)

    def on_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link["path"]))
        is_page = files.get_file_from_path(target) is not None
        return link[0] if is_page or not (ROOT / target).exists() else link["text"]

    return re.sub(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<path>[^)#:]+)(#[^)]*)?\)", on_site, markdown)
